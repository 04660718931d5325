"""Tensors at the edges, and wrong ones, in both protocols: what fits is served, the rest named."""

from __future__ import annotations

import json
import math
import re
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import requests

from tests.conftest import supervisors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[[str, str, dict[str, Any], dict[str, str]], requests.Response]

MODELS = {
    "floats": {"x": {"dtype": "float32", "shape": [None, 2]}},
    "mixed": {
        "x": {"dtype": "float32", "shape": [None]},
        "n": {"dtype": "int32", "shape": [None]},
    },
    "texts": {"s": {"dtype": "string", "shape": [None]}},
    "scalar": {"v": {"dtype": "float32", "shape": []}},
    "flag": {"b": {"dtype": "bool", "shape": [None]}},
}
DATATYPES = {"float32": "FP32", "int32": "INT32", "string": "BYTES", "bool": "BOOL"}
DTYPES = {"FP32": "<f4", "FP64": "<f8", "INT32": "<i4", "INT64": "<i8", "BOOL": "?"}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a supervisor over a folder with the models."""
    models = tmp_path_factory.mktemp("models")
    for name, inputs in MODELS.items():
        (models / f"{name}.echo").write_text(json.dumps({"inputs": inputs}))
    with supervisors(tmp_path_factory.mktemp("edges") / "home") as start:
        yield start("--models-dir", str(models)).url


def flat(value: Any) -> list[Any]:
    """Return the leaves of nested lists."""
    return [leaf for item in value for leaf in flat(item)] if isinstance(value, list) else [value]


def shape_of(value: Any) -> list[int]:
    """Return the shape of nested lists."""
    return [len(value), *(shape_of(value[0]) if value else [])] if isinstance(value, list) else []


def v1(url: str, model: str, columns: dict[str, Any], types: dict[str, str]) -> requests.Response:
    """Send TensorFlow Serving's form."""
    body = json.dumps({"inputs": columns})
    return requests.post(f"{url}/v1/models/{model}:predict", data=body, timeout=60)


def v2(url: str, model: str, columns: dict[str, Any], types: dict[str, str]) -> requests.Response:
    """Send V2's form, all in JSON."""
    inputs = [
        {"name": name, "datatype": types[name], "shape": shape_of(value), "data": flat(value)}
        for name, value in columns.items()
    ]
    body = json.dumps({"inputs": inputs})
    return requests.post(f"{url}/v2/models/{model}/infer", data=body, timeout=60)


def v2_binary(
    url: str, model: str, columns: dict[str, Any], types: dict[str, str]
) -> requests.Response:
    """Send V2's form with binary tensors, and ask for such."""
    inputs, blobs = [], []
    for name, value in columns.items():
        blob = packed(flat(value), types[name])
        told = {"name": name, "datatype": types[name], "shape": shape_of(value)}
        inputs.append(told | {"parameters": {"binary_data_size": len(blob)}})
        blobs.append(blob)
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    return requests.post(
        f"{url}/v2/models/{model}/infer",
        data=head + b"".join(blobs),
        headers={"Inference-Header-Content-Length": str(len(head))},
        timeout=60,
    )


def packed(values: list[Any], datatype: str) -> bytes:
    """Return the bytes of a binary tensor."""
    if datatype != "BYTES":
        return np.array(values, DTYPES[datatype]).tobytes()
    texts = [value.encode() for value in values]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def outputs_of(answer: requests.Response) -> dict[str, list[Any]]:
    """Return the leaves of each output, whatever the form; V1 names no single output."""
    assert answer.status_code == 200, answer.text
    size = answer.headers.get("Inference-Header-Content-Length")
    document = json.loads(answer.content if size is None else answer.content[: int(size)])
    if isinstance(document["outputs"], dict):
        return {name: flat(value) for name, value in document["outputs"].items()}
    if "model_name" not in document:
        return {"": flat(document["outputs"])}
    if size is None:
        return {o["name"]: o["data"] for o in document["outputs"]}
    found, at = {}, int(size)
    for output in document["outputs"]:
        end = at + output["parameters"]["binary_data_size"]
        found[output["name"]] = unpacked(answer.content[at:end], output["datatype"])
        at = end
    return found


def unpacked(blob: bytes, datatype: str) -> list[Any]:
    """Return the elements of a binary tensor."""
    if datatype != "BYTES":
        return np.frombuffer(blob, DTYPES[datatype]).tolist()
    texts = []
    while blob:
        size = 4 + struct.unpack("<I", blob[:4])[0]
        texts.append(blob[4:size].decode())
        blob = blob[size:]
    return texts


FORMS = pytest.mark.parametrize("ask", [v1, v2, v2_binary])


def declared(model: str) -> dict[str, str]:
    """Return the right datatypes of a model's inputs."""
    return {name: DATATYPES[spec["dtype"]] for name, spec in MODELS[model].items()}


SERVED = {
    "finite": ("floats", {"x": [[1.5, -2.0], [0.0, 3e38]]}),
    "not-finite": ("floats", {"x": [[math.nan, math.inf], [-math.inf, -0.0]]}),
    "two-inputs": ("mixed", {"x": [1.5, math.nan], "n": [-(2**31), 2**31 - 1]}),
    "empty": ("mixed", {"x": [], "n": []}),
    "texts": ("texts", {"s": ["", "plain", "\N{SNOWMAN}", 'quote " and \\ slash', "two\nlines"]}),
    "no-texts": ("texts", {"s": []}),
    "scalar": ("scalar", {"v": 2.5}),
    "scalar-nan": ("scalar", {"v": math.nan}),
    "bools": ("flag", {"b": [True, False]}),
}


@FORMS
@pytest.mark.parametrize("case", SERVED)
def test_what_fits_comes_back(url: str, ask: Ask, case: str) -> None:
    model, columns = SERVED[case]
    found = outputs_of(ask(url, model, columns, declared(model)))
    expected = {name: flat(value) for name, value in columns.items()}
    for mine, theirs in zip(expected.values(), found.values(), strict=True):
        if isinstance(mine[:1] and mine[0], float):
            np.testing.assert_array_equal(np.float32(theirs), np.float32(mine))
        else:
            assert theirs == mine


def test_an_empty_batch_keeps_its_other_dimensions(url: str) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [0, 2], "data": []}
    answer = requests.post(f"{url}/v2/models/floats/infer", json={"inputs": [tensor]}, timeout=60)
    assert answer.json()["outputs"] == [tensor]
    rows = requests.post(f"{url}/v1/models/floats:predict", json={"instances": []}, timeout=60)
    assert rows.json() == {"predictions": []}


def test_what_is_not_finite_is_written_bare(url: str) -> None:
    columns = {"x": [[math.nan, math.inf], [-math.inf, 1.0]]}
    assert "[[NaN,Infinity],[-Infinity,1.0]]" in v1(url, "floats", columns, {}).text
    assert '"data":[NaN,Infinity,-Infinity,1.0]' in v2(url, "floats", columns, {"x": "FP32"}).text


REFUSED = {
    "rank-0-wanted": ("scalar", {"v": [2.5]}, {}, r"'v' \(expected float32 of shape \[\]\).*\[1\]"),
    "rank-0-given": (
        "floats",
        {"x": 1.5},
        {},
        r"'x' \(expected float32 of shape \[\?, 2\]\).*\[\]",
    ),
    "one-row-as-it-is": ("floats", {"x": [1.0, 2.0]}, {}, r"'x'.*got shape \[2\]; add a first"),
    "width": ("floats", {"x": [[1.0, 2.0, 3.0]]}, {}, r"'x'.*\[\?, 2\].*got shape \[1, 3\]"),
    "rank": ("floats", {"x": [[[1.0, 2.0]]]}, {}, r"'x'.*got shape \[1, 1, 2\]"),
    "name": ("floats", {"y": [[1.0, 2.0]]}, {"y": "FP32"}, "missing input x.*expects: x"),
    "extra": ("mixed", {"x": [1.0], "n": [1], "z": [1]}, {"z": "INT32"}, "unknown input 'z'.*n, x"),
    "missing": ("mixed", {"x": [1.0]}, {}, "missing input n.*expects: n, x"),
    "rows": ("mixed", {"x": [1.0, 2.0], "n": [1]}, {}, "number of rows: n has 1, x has 2"),
    "text-for-number": ("floats", {"x": [["a", "b"]]}, {"x": "BYTES"}, "'x' .*expected float32"),
    "number-for-text": ("texts", {"s": [1, 2]}, {"s": "INT32"}, "'s' .*expected string"),
    "bool-for-number": ("floats", {"x": [[True, False]]}, {"x": "BOOL"}, "'x' .*expected float32"),
    "number-for-bool": ("flag", {"b": [0, 1]}, {"b": "INT32"}, "'b' .*expected bool"),
    "not-whole": (
        "mixed",
        {"x": [1.0], "n": [0.5]},
        {"n": "FP32"},
        "'n' .*expected int32.*0.5 is not a whole number",
    ),
    "nan-for-whole": (
        "mixed",
        {"x": [1.0], "n": [math.nan]},
        {"n": "FP32"},
        "'n' .*expected int32.*nan is not a whole number",
    ),
    "too-large": ("mixed", {"x": [1.0], "n": [2**31]}, {"n": "INT64"}, "'n' .*out of range"),
    "too-large-float": ("floats", {"x": [[1e39, 0.0]]}, {"x": "FP64"}, "'x' .*out of range"),
}


@FORMS
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_named(url: str, ask: Ask, case: str) -> None:
    model, columns, types, expected = REFUSED[case]
    answer = ask(url, model, columns, declared(model) | types)
    assert answer.status_code == 400, answer.text
    assert answer.headers["Content-Type"] == "application/json"
    assert list(answer.json()) == ["error"]
    assert re.search(expected, answer.json()["error"]), answer.json()["error"]


def test_text_that_is_not_utf8(url: str) -> None:
    """V1 writes it as base64; V2 carries it in binary alone, and says so."""
    body = {"inputs": [{"b64": "/w=="}]}
    answer = requests.post(f"{url}/v1/models/texts:predict", json=body, timeout=60)
    assert answer.json() == {"outputs": [{"b64": "/w=="}]}
    blob = struct.pack("<I", 1) + b"\xff"
    tensor = {"name": "s", "datatype": "BYTES", "shape": [1]}
    tensor["parameters"] = {"binary_data_size": len(blob)}
    head = json.dumps({"inputs": [tensor]}).encode()
    size = {"Inference-Header-Content-Length": str(len(head))}
    refused = requests.post(
        f"{url}/v2/models/texts/infer", data=head + blob, headers=size, timeout=60
    )
    assert refused.status_code == 400
    assert "'s' holds bytes that are not UTF-8; ask for it as binary" in refused.json()["error"]
