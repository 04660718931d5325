"""Bad input over HTTP: the right code, a sentence that helps, and a supervisor that serves on."""

from __future__ import annotations

import gzip
import json
import re
import select
import socket
import zlib
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

MAX_BODY = 100_000  # bytes
FLAGS = ("--max-body-size", str(MAX_BODY))
INPUTS = {
    "f": {"dtype": "float32", "shape": [None, 2]},
    "i": {"dtype": "uint8", "shape": [None]},
    "s": {"dtype": "string", "shape": [None]},
}
GOOD = {"f": [[1.0, 2.0]], "i": [3], "s": ["four"]}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def model(module_supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A model with an input of each kind; its URL. It must answer to the end, by one process."""
    path = tmp_path_factory.mktemp("model") / "m.echo"
    path.write_text(json.dumps({"inputs": INPUTS}))
    loaded = module_supervisor.client.load("m", path)
    yield f"{module_supervisor.url}/v1/models/m"
    assert module_supervisor.client.unload("m").worker == loaded.worker


@pytest.fixture(autouse=True)
def _serves_on(model: str) -> Iterator[None]:
    yield
    answer = requests.post(f"{model}:predict", json={"inputs": GOOD}, timeout=10)
    assert answer.json() == {"outputs": GOOD}


def post(url: str, data: Any, **headers: str) -> requests.Response:
    """Send a body, JSON unless it is bytes; return the answer, which came at once."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    return requests.post(url, data=body, headers=JSON | headers, timeout=10)


def said(answer: requests.Response) -> str:
    """Return the sentence of an error answer: short, and without a traceback."""
    body = answer.json()
    text: str = body["detail"] if "detail" in body else body["error"]
    assert "Traceback" not in text
    assert 10 < len(text) < 500
    return text


BAD_COLUMNS = {
    "missing": ({"f": [[1, 2]], "i": [3]}, "missing input s; .*expects: f, i, s"),
    "unknown": (GOOD | {"g": [1]}, "unknown input 'g'.*expects: f, i, s"),
    "rank": (GOOD | {"f": [1.0, 2.0]}, r"'f' \(expected float32 of shape \[\?, 2\]\).*\[2\]"),
    "width": (GOOD | {"f": [[1, 2, 3]]}, r"'f'.*expected float32.*\[1, 3\]"),
    "ragged": (GOOD | {"f": [[1, 2], [3]]}, "'f'.*differ in length"),
    "rows": (GOOD | {"i": [3, 4]}, "differ in their number of rows: f has 1, i has 2"),
    "scalar": (GOOD | {"i": 3}, r"'i'.*got shape \[\]"),
    "text-as-number": (GOOD | {"f": [["1", "2"]]}, "'f'.*of another type"),
    "bool-as-number": (GOOD | {"f": [[True, False]]}, "'f'.*of another type"),
    "null": (GOOD | {"f": [[None, 1]]}, "'f'.*of another type"),
    "number-as-text": (GOOD | {"s": [4]}, "'s'.*neither a string"),
    "bad-base64": (GOOD | {"s": [{"b64": "%"}]}, "'s'.*base64"),
    "too-big": (GOOD | {"i": [256]}, "'i'.*256 is out of range"),
    "negative": (GOOD | {"i": [-1]}, "'i'.*-1 is out of range"),
    "not-whole": (GOOD | {"i": [2.5]}, "'i'.*2.5 is not a whole number"),
    "huge": (GOOD | {"f": [[1e39, 0]]}, "'f'.*out of range"),
}


@pytest.mark.parametrize(("columns", "expected"), BAD_COLUMNS.values(), ids=BAD_COLUMNS)
def test_wrong_tensors_are_named(model: str, columns: dict[str, Any], expected: str) -> None:
    answer = post(f"{model}:predict", {"inputs": columns})
    assert answer.status_code == 400
    assert re.search(expected, said(answer)), said(answer)
    assert "X-Modelsup-Worker" in answer.headers


def tensor(**changes: Any) -> dict[str, Any]:
    """Return a V2 tensor that is right but for the changes."""
    return {"name": "f", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]} | changes


BAD_TENSORS = {
    "shape": (tensor(shape=[2, 2]), r"'f'"),
    "negative-shape": (tensor(shape=[-1, 2]), "'f'.*shape"),
    "no-shape": (tensor(shape=None), "'f'.*shape"),
    "datatype": (tensor(datatype="FLOAT"), "datatype 'FLOAT' is none of .*FP32"),
    "no-data": ({"name": "f", "shape": [1, 2], "datatype": "FP32"}, "'f'"),
    "no-name": ({"shape": [1, 2], "datatype": "FP32", "data": [1, 2]}, '"name"'),
    "bytes-for-floats": (tensor(datatype="BYTES", data=["a", "b"]), "'f'.*got string"),
    "binary-size": (
        {"name": "f", "shape": [1, 2], "datatype": "FP32", "parameters": {"binary_data_size": 8}},
        "Inference-Header-Content-Length",
    ),
}


@pytest.mark.parametrize(("wrong", "expected"), BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_wrong_v2_tensors_are_named(
    module_supervisor: Supervisor, wrong: dict[str, Any], expected: str
) -> None:
    rest = [
        {"name": "i", "shape": [1], "datatype": "UINT8", "data": [3]},
        {"name": "s", "shape": [1], "datatype": "BYTES", "data": ["four"]},
    ]
    answer = post(f"{module_supervisor.url}/v2/models/m/infer", {"inputs": [wrong, *rest]})
    assert answer.status_code == 400
    assert re.search(expected, said(answer)), said(answer)


BAD_BODIES = {
    "empty": (b"", "not JSON"),
    "cut": (b'{"inputs": {"f": [[1', "not JSON"),
    "not-utf8": (b'{"inputs": "\xff"}', "not JSON"),
    "list": (b"[1, 2]", "must be a JSON object"),
    "neither": (b"{}", '"instances".*or "inputs"'),
    "both": (b'{"instances": [], "inputs": []}', '"instances".*or "inputs"'),
    "no-such-signature": (
        b'{"signature_name": "nope", "inputs": {}}',
        "no signature 'nope'.*it has",
    ),
    "signature-of-wrong-type": (b'{"signature_name": [1], "inputs": {}}', "no signature"),
    "rows-of-another-kind": (b'{"instances": 7}', "instances"),
    "deep": (b'{"inputs": ' + b"[" * 40_000 + b"]" * 40_000 + b"}", "JSON|dimensions|input"),
    "long-number": (b'{"inputs": {"i": [' + b"9" * 5000 + b"]}}", "."),
}


@pytest.mark.parametrize("path", ["v1/models/m:predict", "v2/models/m/infer"])
@pytest.mark.parametrize("body", [b"", b"{", b"\x00", b"nul", b"[]", b'"x"'])
def test_what_is_not_a_json_object(module_supervisor: Supervisor, path: str, body: bytes) -> None:
    answer = post(f"{module_supervisor.url}/{path}", body)
    assert answer.status_code == 400
    assert "JSON" in said(answer)


@pytest.mark.parametrize(("body", "expected"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_bad_v1_bodies(model: str, body: bytes, expected: str) -> None:
    answer = post(f"{model}:predict", body)
    assert answer.status_code == 400
    assert re.search(expected, said(answer)), said(answer)


def test_what_is_not_finite_passes_both_ways(model: str) -> None:
    """TensorFlow Serving reads and writes these literals, though JSON has none."""
    body = b'{"inputs": {"f": [[NaN, Infinity], [-Infinity, 1.0]], "i": [1, 2], "s": ["a", "b"]}}'
    answer = post(f"{model}:predict", body)
    assert answer.status_code == 200
    assert '"f":[[NaN,Infinity],[-Infinity,1.0]]' in answer.text.replace(" ", "")
    for number in ("NaN", "Infinity"):
        wrong = f'{{"inputs": {{"f": [[1, 2]], "i": [{number}], "s": ["a"]}}}}'
        refused = post(f"{model}:predict", wrong.encode())
        assert refused.status_code == 400
        assert re.search("'i'.*not a whole number", said(refused))


def test_an_empty_batch_gives_an_empty_answer(model: str) -> None:
    columns: dict[str, list[Any]] = {"f": [], "i": [], "s": []}
    assert post(f"{model}:predict", {"inputs": columns}).json() == {"outputs": columns}
    rows = post(f"{model}:predict", {"instances": []})
    assert (rows.status_code, rows.json()) == (200, {"predictions": []})


@pytest.mark.parametrize(
    ("encoding", "body", "status", "expected"),
    [
        ("br", b"\x0b\x02", 415, "'br' is not supported; use gzip or deflate"),
        ("gzip, gzip", b"", 415, "not supported"),
        ("gzip", b"\x1f\x8b", 400, "the compressed body ends before its end"),
        ("gzip", b'{"inputs": 1}', 400, "not valid gzip"),
        ("deflate", b'{"inputs": 1}', 400, "not valid deflate"),
        ("gzip", gzip.compress(b"{") + b"{", 400, "or goes on behind it"),
        ("gzip", gzip.compress(b"{"), 400, "not JSON"),
        ("gzip", gzip.compress(bytes(100 * MAX_BODY)), 413, "once it is unpacked"),
        ("deflate", zlib.compress(bytes(MAX_BODY + 1)), 413, f"limit of {MAX_BODY} bytes"),
    ],
)
def test_compressed_bodies_that_are_refused(
    model: str, encoding: str, body: bytes, status: int, expected: str
) -> None:
    answer = post(f"{model}:predict", body, **{"Content-Encoding": encoding})
    assert answer.status_code == status
    assert expected in said(answer)


def test_the_content_type_of_a_v1_body_does_not_matter(model: str) -> None:
    """As with TensorFlow Serving: curl's default is that of a form."""
    for kind in ("application/x-www-form-urlencoded", "text/plain", ""):
        answer = post(f"{model}:predict", {"inputs": GOOD}, **{"Content-Type": kind})
        assert answer.json() == {"outputs": GOOD}


@pytest.mark.parametrize("path", ["v1/models/m:predict", "v2/models/m/infer", "clients/c/predict"])
def test_a_body_over_the_limit_is_refused_unread(module_supervisor: Supervisor, path: str) -> None:
    body = b"x" * (MAX_BODY + 1)
    declared = post(f"{module_supervisor.url}/{path}", body)
    chunked = requests.post(
        f"{module_supervisor.url}/{path}",
        data=iter([body[:50_000], body[50_000:]]),
        headers=JSON,
        timeout=10,
    )
    for answer in (declared, chunked):
        assert answer.status_code == 413
        assert f"over the limit of {MAX_BODY} bytes" in said(answer)
        assert "max_body_size" in said(answer)


def test_a_body_without_an_end_is_refused_at_the_limit(module_supervisor: Supervisor) -> None:
    """The answer comes while the client still sends."""
    head = b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"%x\r\n%s\r\n" % (1000, b"x" * 1000)
    sent = 0
    with socket.create_connection(("127.0.0.1", module_supervisor.port), timeout=10) as connection:
        connection.sendall(head)
        while not select.select([connection], [], [], 0)[0]:
            connection.sendall(chunk)
            sent += len(chunk)
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
    assert MAX_BODY < sent < 100 * MAX_BODY


def test_a_control_body_over_its_limit(module_supervisor: Supervisor) -> None:
    body = b'{"source": "' + b"x" * 1_000_000 + b'"}'
    answer = post(f"{module_supervisor.url}/api/models/m/load", body)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


UNKNOWN = {
    "v1-model": ("POST", "/v1/models/nope:predict", 404, "nope"),
    "v1-version": ("POST", "/v1/models/m/versions/9:predict", 404, "9"),
    "v1-label": ("POST", "/v1/models/m/labels/stable:predict", 404, "stable"),
    "v1-status": ("GET", "/v1/models/nope", 404, "nope"),
    "v1-status-version": ("GET", "/v1/models/m/versions/9", 404, "9"),
    "v1-metadata": ("GET", "/v1/models/nope/metadata", 404, "nope"),
    "v1-verb": ("POST", "/v1/models/m:explain", 404, "no path"),
    "v1-path": ("GET", "/v1/nothing", 404, "no path"),
    "v1-method": ("GET", "/v1/models/m:predict", 405, "POST"),
    "v1-status-method": ("DELETE", "/v1/models/m", 405, "GET"),
    "v1-bad-name": ("POST", "/v1/models/..%2Fetc:predict", 404, "no path"),
    "v2-model": ("POST", "/v2/models/nope/infer", 404, "nope"),
    "v2-version": ("POST", "/v2/models/m/versions/9/infer", 404, "9"),
    "v2-ready": ("GET", "/v2/models/nope/ready", 404, "nope"),
    "v2-path": ("GET", "/v2/models/m/nothing", 404, "no path"),
    "v2-method": ("PUT", "/v2/models/m/infer", 405, "POST"),
    "client": ("POST", "/clients/nobody/predict", 404, "nobody"),
    "client-infer": ("POST", "/clients/nobody/infer", 404, "nobody"),
    "client-path": ("POST", "/clients/nobody", 404, "no path"),
    "client-method": ("GET", "/clients/nobody/predict", 405, "POST"),
    "api-path": ("GET", "/api/nothing", 404, "/api/nothing"),
    "api-method": ("POST", "/api/models", 405, "GET"),
    "api-model": ("GET", "/api/models/nope", 404, "nope"),
    "api-unload": ("POST", "/api/models/nope/unload", 404, "nope"),
    "api-load": ("POST", "/api/models/nope/load", 404, "nope"),
    "api-logs": ("GET", "/api/models/nope/logs", 404, "nope"),
    "api-follow": ("GET", "/api/models/nope/logs?follow=1", 404, "nope"),
    "api-worker": ("GET", "/api/workers/w-0", 404, "w-0"),
    "api-client": ("GET", "/api/clients/nobody", 404, "nobody"),
    "api-release": ("DELETE", "/api/clients/nobody", 404, "nobody"),
    "root": ("GET", "/nothing", 404, "/nothing"),
    "probe-method": ("POST", "/healthz", 405, "GET"),
}


@pytest.mark.parametrize(("method", "path", "status", "expected"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_is_not_there(
    module_supervisor: Supervisor, method: str, path: str, status: int, expected: str
) -> None:
    answer = requests.request(method, module_supervisor.url + path, timeout=10)
    assert answer.status_code == status
    assert expected in said(answer)
    if status == 405:
        assert "Allow" in answer.headers


BAD_CALLS = {
    "type": ("POST", "models/m/load", b"a=1", {"Content-Type": "text/plain"}, 415, "json"),
    "no-type": ("POST", "models/m/load", b"{}", {}, 415, "Content-Type"),
    "not-json": ("POST", "models/m/load", b"{", JSON, 400, "not JSON"),
    "not-an-object": ("POST", "models/m/load", b"[]", JSON, 422, "object"),
    "field": ("POST", "models/m/load", b'{"sourse": "x"}', JSON, 422, "did you mean 'source'"),
    "option": ("POST", "models/m/load", b'{"options": {"ram": "lots"}}', JSON, 422, "ram"),
    "fraction": (
        "POST",
        "models/m/load",
        b'{"options": {"gpu_memory_fraction": 2}}',
        JSON,
        422,
        "gpu_memory_fraction",
    ),
    "wait": ("POST", "models/m/load?wait=soon", b"{}", JSON, 422, "wait"),
    "query": ("POST", "models/m/unload?now=1", b"{}", JSON, 422, "now"),
    "timeout": ("POST", "models/m/unload", b'{"timeout": -1}', JSON, 422, "timeout"),
    "name": ("PUT", "models/.hidden", b'{"runtime": "echo"}', JSON, 422, "letters"),
    "runtime": ("POST", "models/x/load", b'{"runtime": "onyx"}', JSON, 422, "installed are echo"),
    "nothing": ("PUT", "models/new", b"{}", JSON, 404, "new"),
    "no-model": ("PUT", "clients/c/model", b"{}", JSON, 422, "model"),
    "swap-unknown": ("PUT", "clients/c/model", b'{"model": "nope"}', JSON, 404, "nope"),
    "client-name": ("PUT", "clients/.c/model", b'{"model": "m"}', JSON, 422, "letters"),
}


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status", "expected"),
    BAD_CALLS.values(),
    ids=BAD_CALLS,
)
def test_bad_control_calls(
    module_supervisor: Supervisor,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str],
    status: int,
    expected: str,
) -> None:
    url = f"{module_supervisor.url}/api/{path}"
    answer = requests.request(method, url, data=body, headers=headers, timeout=10)
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail", "code"} <= problem.keys()
    assert expected in said(answer)


def test_files_that_are_no_models(module_supervisor: Supervisor, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    broken = tmp_path / "broken.echo"
    broken.write_text("{")
    for source, expected in (
        (tmp_path / "absent.keras", "does not exist"),
        (folder, "holds no model"),
        (text, "of no known kind"),
    ):
        answer = post(f"{module_supervisor.url}/api/models/bad/load", {"source": str(source)})
        assert answer.status_code == 422
        assert str(source) in said(answer)
        assert expected in said(answer)
    answer = post(f"{module_supervisor.url}/api/models/broken/load", {"source": str(broken)})
    assert answer.status_code == 422
    assert answer.json()["code"] == "load_failed"
    assert answer.json()["cause"] == "bad_model"
    assert "not an echo model" in said(answer)


def test_a_source_that_vanishes_is_told_to_who_asks_for_a_prediction(
    module_supervisor: Supervisor, echo_model: Callable[..., str], tmp_path: Path
) -> None:
    source = echo_model("fleeting")
    module_supervisor.client.add_model("fleeting", source)
    (tmp_path / "fleeting.echo").unlink()
    answer = post(f"{module_supervisor.url}/v1/models/fleeting:predict", {"instances": [[1]]})
    assert answer.status_code == 422
    assert answer.headers["X-Modelsup-Error"] == "load_failed"
    assert "fleeting.echo does not exist" in said(answer)


def test_a_loaded_model_keeps_its_source(
    module_supervisor: Supervisor, echo_model: Callable[..., str]
) -> None:
    answer = post(f"{module_supervisor.url}/api/models/m/load", {"source": echo_model("other")})
    assert (answer.status_code, answer.json()["code"]) == (409, "source_conflict")
    assert "unload it first" in said(answer)
