"""TensorFlow Serving and KServe V2, as a client that has never heard of modelsup speaks them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import requests

from tests.e2e.http_by_curl import curl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

TWO_INPUTS = {
    "a": {"dtype": "float32", "shape": [None]},
    "b": {"dtype": "int64", "shape": [None, 2]},
}


@pytest.fixture(scope="module")
def model(module_supervisor: Supervisor) -> Iterator[str]:
    """An echo model with the default input "x": the URL of its V1 path."""
    module_supervisor.client.load("m", runtime="echo")
    yield f"{module_supervisor.url}/v1/models/m"
    module_supervisor.client.unload("m")


@pytest.fixture
def versions(tmp_path: Path, start_supervisor: Callable[..., Supervisor]) -> str:
    """A models folder as TensorFlow Serving wants it; the URL of a supervisor over it."""
    for number in ("1", "2", "10"):
        folder = tmp_path / "models" / "served" / number
        folder.mkdir(parents=True)
        inputs = {f"of_{number}": {"dtype": "int32", "shape": [None]}}
        (folder / "model.echo").write_text(json.dumps({"inputs": inputs}))
    return start_supervisor("--models-dir", str(tmp_path / "models")).url


def test_v1_predict_by_rows(model: str) -> None:
    answer = curl(f"{model}:predict", {"instances": [[1.0, 2.0], [3.0, 4.5]]})
    assert answer == (200, "application/json", {"predictions": [[1.0, 2.0], [3.0, 4.5]]})


def test_v1_predict_by_columns(model: str) -> None:
    answer = curl(f"{model}:predict", {"inputs": {"x": [[1.0, 2.0]]}})
    assert answer == (200, "application/json", {"outputs": [[1.0, 2.0]]})


def test_v1_predict_with_several_inputs(
    module_supervisor: Supervisor, echo_model: Callable[..., str]
) -> None:
    module_supervisor.client.load("two", echo_model("two", inputs=TWO_INPUTS))
    url = f"{module_supervisor.url}/v1/models/two:predict"
    rows = [{"a": 0.5, "b": [1, 2]}, {"a": 1.5, "b": [3, 4]}]
    columns = {"a": [0.5, 1.5], "b": [[1, 2], [3, 4]]}
    assert curl(url, {"instances": rows}).body == {"predictions": rows}
    assert curl(url, {"inputs": columns}).body == {"outputs": columns}
    module_supervisor.client.unload("two")


def test_v1_status_and_metadata(model: str) -> None:
    assert curl(model).body == {
        "model_version_status": [
            {
                "version": "1",
                "state": "AVAILABLE",
                "status": {"error_code": "OK", "error_message": ""},
            }
        ]
    }
    metadata = curl(f"{model}/metadata").body
    assert metadata["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
    signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"
    dims = signature["inputs"]["x"]["tensor_shape"]["dim"]
    assert [dim["size"] for dim in dims] == ["-1", "-1"]


def test_v2_infer(module_supervisor: Supervisor, model: str) -> None:
    tensor = {"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [1.0, 2.0, 3.0, 4.0]}
    answer = curl(f"{module_supervisor.url}/v2/models/m/infer", {"id": "7", "inputs": [tensor]})
    assert answer.status == 200
    assert answer.body == {
        "model_name": "m",
        "model_version": "1",
        "id": "7",
        "outputs": [tensor],
    }


def test_v2_ready_and_metadata(module_supervisor: Supervisor, model: str) -> None:
    v2 = f"{module_supervisor.url}/v2"
    assert curl(f"{v2}/health/live").status == 200
    assert curl(f"{v2}/health/ready").status == 200
    assert curl(f"{v2}/models/m/ready").status == 200
    assert curl(v2).body["name"] == "modelsup"
    assert "binary_tensor_data" in curl(v2).body["extensions"]
    tensor = {"name": "x", "datatype": "FP32", "shape": [-1, -1]}
    assert curl(f"{v2}/models/m").body == {
        "name": "m",
        "versions": ["1"],
        "platform": "echo",
        "inputs": [tensor],
        "outputs": [tensor],
    }


def test_v2_repository_loads_and_unloads(module_supervisor: Supervisor) -> None:
    module_supervisor.client.load("r", runtime="echo")
    repository = f"{module_supervisor.url}/v2/repository"
    assert curl(f"{repository}/models/r/unload", {}).status == 200
    states = {entry["name"]: entry["state"] for entry in curl(f"{repository}/index", {}).body}
    assert states["r"] == "UNAVAILABLE"
    assert curl(f"{module_supervisor.url}/v2/models/r/ready").status == 503
    assert curl(f"{repository}/models/r/load", {}).status == 200
    assert curl(f"{module_supervisor.url}/v2/models/r/ready").status == 200
    module_supervisor.client.unload("r")


def test_the_first_request_loads_the_highest_version(versions: str) -> None:
    v1 = f"{versions}/v1/models/served"
    (before,) = curl(v1).body["model_version_status"]
    assert (before["version"], before["state"]) == ("10", "START")

    assert curl(f"{v1}:predict", {"inputs": {"of_10": [7]}}).body == {"outputs": [7]}

    (after,) = curl(v1).body["model_version_status"]
    assert (after["version"], after["state"]) == ("10", "AVAILABLE")
    assert curl(f"{versions}/v2/models/served").body["versions"] == ["1", "2", "10"]


def test_a_version_can_be_asked_for(versions: str) -> None:
    v1 = f"{versions}/v1/models/served/versions"
    assert curl(f"{v1}/1:predict", {"inputs": {"of_1": [7]}}).body == {"outputs": [7]}
    infer = {"inputs": [{"name": "of_2", "shape": [1], "datatype": "INT32", "data": [8]}]}
    answer = curl(f"{versions}/v2/models/served/versions/2/infer", infer).body
    assert (answer["model_version"], answer["outputs"][0]["data"]) == ("2", [8])
    assert curl(f"{v1}/1").body["model_version_status"][0]["state"] == "AVAILABLE"

    gone = curl(f"{v1}/3:predict", {"instances": [7]})

    assert gone.status == 404
    assert "3" in gone.body["error"]
    workers = requests.get(f"{versions}/api/workers", timeout=60).json()["workers"]
    assert sorted(worker["version"] for worker in workers) == ["1", "2"]


def test_a_question_without_a_version_is_about_what_a_prediction_without_one_gets(
    versions: str,
) -> None:
    """It was about whichever version had been loaded first."""
    v1, v2 = f"{versions}/v1/models/served", f"{versions}/v2/models/served"
    assert curl(f"{v1}/versions/2:predict", {"inputs": {"of_2": [7]}}).status == 200
    (only,) = curl(v1).body["model_version_status"]
    assert (only["version"], only["state"]) == ("2", "AVAILABLE")
    metadata = curl(f"{v1}/metadata").body
    assert metadata["model_spec"]["version"] == "10"
    assert curl(v2).body["inputs"][0]["name"] == "of_10"
    both = curl(v1).body["model_version_status"]
    assert [told["version"] for told in both] == ["10", "2"]


def test_metadata_is_that_of_the_version(versions: str) -> None:
    """It loads the version that is asked about, whatever else is loaded."""
    v1 = f"{versions}/v1/models/served"
    for path, version in (("", "10"), ("/versions/2", "2"), ("", "10"), ("/versions/10", "10")):
        metadata = curl(f"{v1}{path}/metadata").body
        assert metadata["model_spec"]["version"] == version
        signature = metadata["metadata"]["signature_def"]["signature_def"]["serving_default"]
        assert list(signature["inputs"]) == [f"of_{version}"]
    states = [
        curl(f"{v1}/versions/{version}").body["model_version_status"][0]["state"]
        for version in ("1", "2", "10")
    ]
    assert states == ["START", "AVAILABLE", "AVAILABLE"]
