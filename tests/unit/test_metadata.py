"""What TensorFlow Serving and KServe V2 clients are told about models."""

from __future__ import annotations

from typing import Any

import pytest
from modelsup.supervisor.domain import Failure, Options
from modelsup.supervisor.fleet.views import ModelView
from modelsup.supervisor.http.metadata import (
    current_version,
    v1_metadata,
    v1_status,
    v2_config,
    v2_index,
    v2_metadata,
)
from modelsup.supervisor.states import State
from modelsup.worker.contract import Signature, TensorInfo

FAILURE = Failure("bad_model", "unknown layer")
SERVING = Signature(
    "serving_default",
    (TensorInfo("x", "float32", (None, 4)), TensorInfo("s", "string", None)),
    (TensorInfo("y", "bfloat16", ()),),
    batchable=True,
)
OTHER = Signature("other", (TensorInfo("a", "int64", (3,)),), (), batchable=False)


def view(state: str, **changes: Any) -> ModelView:
    """Return a model as the fleet shows it."""
    fields: dict[str, Any] = {
        "name": "m",
        "source": None,
        "runtime": "tensorflow",
        "version": None if state == "unloaded" else "2",
        "versions": ("1", "2", "10"),
        "state": state,
        "workers": (),
        "clients": (),
        "pinned": False,
        "options": Options(),
        "failure": None,
        "signatures": None,
    }
    return ModelView(**fields | changes)


def status(shown: ModelView, version: str = "2", *, autoload: bool = True) -> tuple[str, str, str]:
    """Return state, error code and message of one version."""
    (only,) = v1_status({version: shown}, autoload=autoload)["model_version_status"]
    assert only["version"] == version
    return only["state"], only["status"]["error_code"], only["status"]["error_message"]


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ("starting", "START"),
        ("loading", "LOADING"),
        ("warming", "LOADING"),
        ("restarting", "LOADING"),
        ("ready", "AVAILABLE"),
        ("parked", "START"),
        ("draining", "UNLOADING"),
        ("stopping", "UNLOADING"),
        ("stuck", "END"),
        ("leaked", "END"),
    ],
)
def test_v1_states(state: str, word: str) -> None:
    assert status(view(state)) == (word, "OK", "")


@pytest.mark.parametrize("state", [*State, "unloaded", "queued", "restarting"])
def test_every_state_has_a_word_of_tensorflow_serving(state: str) -> None:
    words = {"START", "LOADING", "AVAILABLE", "UNLOADING", "END"}
    assert status(view(state))[0] in words


def test_a_model_that_loads_by_itself_is_not_available_yet() -> None:
    word, code, message = status(view("unloaded"))
    assert (word, code) == ("START", "OK")
    assert "first prediction" in message
    assert status(view("unloaded"), autoload=False) == ("END", "OK", "not loaded")


def test_a_version_beside_the_served_one_is_not_loaded() -> None:
    assert status(view("ready"), "1")[0] == "START"
    assert status(view("failed", failure=FAILURE), "1")[1] == "OK"


def test_a_failed_model_says_why() -> None:
    assert status(view("failed", failure=FAILURE)) == ("END", "UNKNOWN", "unknown layer")
    assert status(view("restarting", failure=FAILURE)) == ("LOADING", "UNKNOWN", "unknown layer")


def test_an_old_failure_does_not_taint_a_ready_model() -> None:
    assert status(view("ready", failure=FAILURE)) == ("AVAILABLE", "OK", "")


def test_the_current_version_is_the_served_or_the_highest() -> None:
    assert current_version(view("ready")) == "2"
    assert current_version(view("unloaded")) == "10"
    assert current_version(view("unloaded", versions=("9", "x"))) == "9"
    assert current_version(view("unloaded", versions=())) is None


def test_v1_metadata() -> None:
    assert v1_metadata(view("ready"), "2", [SERVING, OTHER]) == {
        "model_spec": {"name": "m", "signature_name": "", "version": "2"},
        "metadata": {
            "signature_def": {
                "signature_def": {
                    "serving_default": {
                        "inputs": {
                            "x": {
                                "dtype": "DT_FLOAT",
                                "tensor_shape": {
                                    "dim": [{"size": "-1", "name": ""}, {"size": "4", "name": ""}],
                                    "unknown_rank": False,
                                },
                                "name": "x",
                            },
                            "s": {
                                "dtype": "DT_STRING",
                                "tensor_shape": {"dim": [], "unknown_rank": True},
                                "name": "s",
                            },
                        },
                        "outputs": {
                            "y": {
                                "dtype": "DT_BFLOAT16",
                                "tensor_shape": {"dim": [], "unknown_rank": False},
                                "name": "y",
                            }
                        },
                        "method_name": "tensorflow/serving/predict",
                        "defaults": {},
                    },
                    "other": {
                        "inputs": {
                            "a": {
                                "dtype": "DT_INT64",
                                "tensor_shape": {
                                    "dim": [{"size": "3", "name": ""}],
                                    "unknown_rank": False,
                                },
                                "name": "a",
                            }
                        },
                        "outputs": {},
                        "method_name": "tensorflow/serving/predict",
                        "defaults": {},
                    },
                }
            }
        },
    }


def test_v2_metadata_shows_the_default_signature() -> None:
    assert v2_metadata(view("ready"), [OTHER, SERVING]) == {
        "name": "m",
        "versions": ["1", "2", "10"],
        "platform": "tensorflow",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 4]},
            {"name": "s", "datatype": "BYTES", "shape": [-1]},
        ],
        "outputs": [{"name": "y", "datatype": "BF16", "shape": []}],
    }
    assert v2_metadata(view("ready"), [OTHER])["inputs"] == [
        {"name": "a", "datatype": "INT64", "shape": [3]}
    ]


def test_how_images_are_read_is_told() -> None:
    option = {"size": [8, 8], "scale": 0.5}
    shown = view("ready", options=Options(image=option))
    assert v2_metadata(shown, [OTHER])["image"] == option
    assert v1_metadata(shown, "1", [OTHER])["metadata"]["image"] == option


def test_v2_config_has_shapes_without_the_batch() -> None:
    assert v2_config(view("ready"), [OTHER], 32)["max_batch_size"] == 0
    assert "dynamic_batching" not in v2_config(view("ready"), [OTHER], 32)
    tensors = (TensorInfo("x", "float32", (None, 4)), TensorInfo("s", "string", (None,)))
    batched = Signature("serving_default", tensors, tensors[:1], batchable=True)
    assert v2_config(view("ready"), [OTHER, batched], 32) == {
        "name": "m",
        "platform": "tensorflow",
        "backend": "tensorflow",
        "max_batch_size": 32,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [4]},
            {"name": "s", "data_type": "TYPE_STRING", "dims": []},
        ],
        "output": [{"name": "x", "data_type": "TYPE_FP32", "dims": [4]}],
        "model_transaction_policy": {"decoupled": False},
        "dynamic_batching": {"preferred_batch_size": [], "max_queue_delay_microseconds": 0},
    }


def test_v2_config_has_the_batching_of_the_model() -> None:
    tensors = (TensorInfo("x", "float32", (None, 4)),)
    batched = Signature("serving_default", tensors, tensors, batchable=True)
    options = Options(max_batch_size=8, max_delay=0.005, preferred_batch_sizes=[4, 8])
    config = v2_config(view("ready", options=options), [batched], 32)
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": 5000,
    }


@pytest.mark.parametrize(
    ("dtype", "v1", "v2"),
    [
        ("float16", "DT_HALF", "FP16"),
        ("float64", "DT_DOUBLE", "FP64"),
        ("int8", "DT_INT8", "INT8"),
        ("uint8", "DT_UINT8", "UINT8"),
        ("uint64", "DT_UINT64", "UINT64"),
        ("bool", "DT_BOOL", "BOOL"),
    ],
)
def test_types(dtype: str, v1: str, v2: str) -> None:
    signature = Signature("s", (TensorInfo("x", dtype, (1,)),), (), batchable=False)
    shown = v1_metadata(view("ready"), "1", [signature])["metadata"]["signature_def"]
    assert shown["signature_def"]["s"]["inputs"]["x"]["dtype"] == v1
    assert v2_metadata(view("ready"), [signature])["inputs"][0]["datatype"] == v2


def test_v2_index() -> None:
    views = [view("ready"), view("failed", failure=FAILURE), view("unloaded")]
    assert v2_index(views, ready_only=False) == [
        {"name": "m", "version": "2", "state": "READY", "reason": ""},
        {"name": "m", "version": "2", "state": "UNAVAILABLE", "reason": "unknown layer"},
        {"name": "m", "version": "10", "state": "UNAVAILABLE", "reason": "unloaded"},
    ]
    assert [entry["state"] for entry in v2_index(views, ready_only=True)] == ["READY"]
