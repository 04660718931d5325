"""The requests of TensorFlow Serving's documentation, sent by curl to the model they are for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import supervisors
from tests.e2e.http_by_curl import curl

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.tensorflow
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of half_plus_two: version 123, and the same once more as version 124."""
    models = tmp_path_factory.mktemp("models")
    for version in ("123", "124"):
        program = [sys.executable, str(HERE / "export_half_plus_two.py")]
        subprocess.run(
            [*program, str(models / "half_plus_two" / version)],
            check=True,
            capture_output=True,
            timeout=100,
        )
    home = tmp_path_factory.mktemp("serving") / "home"
    with supervisors(home) as start:
        yield f"{start('--models-dir', str(models)).url}/v1/models/half_plus_two"


def said(body: dict[str, Any]) -> str:
    """Return the sentence of an error, which must be all that there is."""
    assert list(body) == ["error"]
    text: str = body["error"]
    assert "Traceback" not in text
    assert "File" not in text
    return text


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        ({"instances": [1.0, 2.0, 5.0]}, {"predictions": [2.5, 3.0, 4.5]}),
        ({"instances": [[1.0], [2.0]]}, {"predictions": [[2.5], [3.0]]}),
        ({"instances": [{"x": [1.0]}, {"x": [2.0]}]}, {"predictions": [[2.5], [3.0]]}),
        ({"instances": [{"x": 1.0}]}, {"predictions": [2.5]}),
        ({"inputs": [[1.0], [2.0]]}, {"outputs": [[2.5], [3.0]]}),
        ({"inputs": {"x": [[1.0]]}}, {"outputs": [[2.5]]}),
        ({"inputs": [], "signature_name": ""}, {"outputs": []}),
        (
            {"instances": [[1.0]], "signature_name": "two"},
            {"predictions": [{"y": [2.5], "words": ["half plus two"]}]},
        ),
        (
            {"inputs": [[1.0]], "signature_name": "two"},
            {"outputs": {"y": [[2.5]], "words": [["half plus two"]]}},
        ),
        ({"inputs": 3.0, "signature_name": "scalar"}, {"outputs": 1.5}),
        (
            {"instances": [{"b64": "/9j/"}, "text"], "signature_name": "bytes"},
            {"predictions": [{"b64": "/9j/"}, {"b64": "dGV4dA=="}]},
        ),
        (
            {"inputs": {"image": [{"b64": "AAA="}]}, "signature_name": "bytes"},
            {"outputs": [{"b64": "AAA="}]},
        ),
    ],
)
def test_predict(model: str, request_body: dict[str, Any], expected: dict[str, Any]) -> None:
    answer = curl(f"{model}:predict", request_body)
    assert answer == (200, "application/json", expected)


def test_what_is_not_finite_is_written_bare(model: str) -> None:
    answer = curl(f"{model}:predict", '{"instances": [NaN, Infinity, -Infinity, 1]}')
    assert answer.text == '{"predictions":[NaN,Infinity,-Infinity,2.5]}'


@pytest.mark.parametrize(
    ("request_body", "expected"),
    [
        (
            {
                "signature_name": "tensorflow/serving/regress",
                "examples": [{"x": 1.0}, {"x": 2.0}],
            },
            [2.5, 3.0],
        ),
        ({"signature_name": "regress_x_to_y2", "examples": [{"x": [4.0]}]}, [5.0]),
        (
            {"signature_name": "regress_x2", "examples": [{"x": 0.0, "x2": 7.5}, {"x": 1.0}]},
            [7.5, 0],
        ),
        (
            {
                "signature_name": "regress_x2",
                "context": {"x2": 0.5},
                "examples": [{"x": 1.0}, {"x": 2.0}],
            },
            [0.5, 0.5],
        ),
        ({"signature_name": "regress_x_to_y", "examples": []}, []),
    ],
)
def test_regress(model: str, request_body: dict[str, Any], expected: list[float]) -> None:
    answer = curl(f"{model}:regress", request_body)
    assert answer == (200, "application/json", {"results": expected})


def test_classify(model: str) -> None:
    examples = [{"x": 1.0}, {"x": 2.0}]
    body = {"signature_name": "classify_x_to_y", "examples": examples}
    assert curl(f"{model}:classify", body).body == {"results": [[["", 2.5]], [["", 3.0]]]}
    body["signature_name"] = "classify_named"
    assert curl(f"{model}:classify", body).body == {
        "results": [[["half plus two", 2.5]], [["half plus two", 3.0]]]
    }


def test_classify_writes_what_is_not_finite_bare(model: str) -> None:
    body = '{"signature_name": "classify_x_to_y", "examples": [{"x": NaN}, {"x": -Infinity}]}'
    assert curl(f"{model}:classify", body).text == '{"results":[[["",NaN]],[["",-Infinity]]]}'


@pytest.mark.parametrize(
    ("verb", "request_body", "expected"),
    [
        (
            "regress",
            {"examples": [{"x": 1.0}]},
            "'serving_default' is for :predict.*regress_x_to_y",
        ),
        ("classify", {"signature_name": "regress_x_to_y", "examples": []}, "is for :regress"),
        ("regress", {"signature_name": "regress_numbers", "examples": []}, "serialised examples"),
        ("regress", {"signature_name": "nope", "examples": []}, "no signature 'nope'; it has"),
        ("regress", {"signature_name": "regress_x_to_y"}, '"examples"'),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [3]}, "example 0 must be"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{}]}, "x .*is required"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": 1}]}, "x.*float"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": "a"}]}, "x.*float"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": [[1.0]]}]}, "'x'"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": None}]}, "'x'"),
        ("regress", {"signature_name": "regress_x_to_y", "examples": [{"x": 1e39}]}, "'x'.*range"),
        (
            "regress",
            {"signature_name": "regress_x_to_y", "context": {"x": 1.0}, "examples": [{"x": 2.0}]},
            'example 0: feature x is in "context" already',
        ),
        ("predict", {"instances": [[1.0, 2.0]]}, r"'x' \(expected float32 of shape \[\?, 1\]\)"),
        ("predict", {"signature_name": "scalar", "inputs": [3.0]}, r"'scalar'.*of shape \[\]"),
        ("predict", {"signature_name": "scalar", "instances": [3.0]}, r"'scalar'.*of shape \[\]"),
        ("predict", {"inputs": {"y": [[1.0]]}}, "missing input x"),
        ("predict", {"instances": ["a"]}, "'x' .*'a' is of another type"),
    ],
)
def test_what_cannot_be_served_is_said(
    model: str, verb: str, request_body: dict[str, Any], expected: str
) -> None:
    answer = curl(f"{model}:{verb}", request_body)
    assert answer.status == 400
    assert re.search(expected, said(answer.body)), said(answer.body)


def test_status_of_all_versions_and_of_one(model: str) -> None:
    assert curl(f"{model}/versions/123:predict", {"instances": [1.0]}).status == 200
    assert curl(f"{model}:predict", {"instances": [1.0]}).status == 200
    available = {
        version: {
            "version": version,
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
        for version in ("123", "124")
    }
    everything = curl(model).body["model_version_status"]
    assert sorted(everything, key=lambda one: one["version"]) == list(available.values())
    assert curl(f"{model}/versions/123").body == {"model_version_status": [available["123"]]}
    gone = curl(f"{model}/versions/7")
    assert (gone.status, said(gone.body)) == (
        404,
        "Could not find version 7 of model half_plus_two",
    )
    assert curl(f"{model}s").status == 404


def test_labels(model: str) -> None:
    base = model.rpartition("/v1/")[0]
    labels = {"stable": "123", "canary": "124", "lost": "9"}
    answer = curl(
        f"{base}/api/models/half_plus_two",
        json.dumps({"options": {"labels": labels}}),
        "-X",
        "PUT",
        "-H",
        "Content-Type: application/json",
    )
    assert (answer.status, answer.body["options"]["labels"]) == (200, labels)
    for label in ("stable", "canary"):
        body = {"instances": [1.0]}
        assert curl(f"{model}/labels/{label}:predict", body).body == {"predictions": [2.5]}
        (status,) = curl(f"{model}/labels/{label}").body["model_version_status"]
        assert (status["version"], status["state"]) == (labels[label], "AVAILABLE")
        metadata = curl(f"{model}/labels/{label}/metadata").body
        assert metadata["model_spec"]["version"] == labels[label]
    for label, expected in (("lost", "9"), ("none", "its labels: canary, lost, stable")):
        refused = curl(f"{model}/labels/{label}:predict", {"instances": [1.0]})
        assert refused.status == 404
        assert expected in said(refused.body)


def test_metadata_has_each_signature_with_its_method(model: str) -> None:
    metadata = curl(f"{model}/metadata").body
    assert metadata["model_spec"]["name"] == "half_plus_two"
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    methods = {name: told["method_name"] for name, told in signatures.items()}
    assert methods["serving_default"] == "tensorflow/serving/predict"
    assert methods["regress_x_to_y"] == "tensorflow/serving/regress"
    assert methods["classify_x_to_y"] == "tensorflow/serving/classify"
    examples = signatures["classify_x_to_y"]["inputs"]["inputs"]
    assert examples["dtype"] == "DT_STRING"
    assert examples["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
