"""SavedModel folders: all their signatures, text, and what has to be left out."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

import numpy as np
import pytest
from modelsup.worker.contract import TensorInfo
from modelsup.worker.warmup import warm_up

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelsup.worker.runtimes.base import Model

    Load = Callable[[Path], Model]

pytestmark = pytest.mark.tensorflow


def test_an_export_answers_as_the_process_that_made_it_did(load: Load, models: Path) -> None:
    expected = np.load(models / "dense.npz")
    model = load(models / "dense_saved_model")
    signature = model.signatures["serving_default"]
    assert signature.batchable
    (name,) = (info.name for info in signature.inputs)
    outputs = model.call("serving_default", {name: expected["inputs"]})
    np.testing.assert_allclose(outputs["output_0"], expected["outputs"], rtol=1e-5, atol=1e-6)


def test_arguments_reach_the_function_by_name(load: Load, models: Path) -> None:
    model = load(models / "several")
    signature = model.signatures["serving_default"]
    assert set(signature.inputs) == {
        TensorInfo("z", "float32", (None, 2)),
        TensorInfo("a", "float32", ()),
    }
    assert not signature.batchable
    inputs = {"a": np.array(1, "float32"), "z": np.array([[1, 2]], "float32")}
    outputs = model.call("serving_default", inputs)
    assert outputs["result"].tolist() == [[3, 5]]
    assert outputs["any_rank"].tolist() == [[1, 2]]


def test_text_comes_out_as_bytes(load: Load, models: Path) -> None:
    model = load(models / "several")
    outputs = model.call("shout", {"text": np.array([b"ab", "ö".encode()], dtype=object)})
    assert outputs["loud"].tolist() == [b"AB", "ö".encode()]
    assert outputs["loud"].dtype == object
    assert outputs["length"].tolist() == [2, 2]


def test_a_signature_without_a_numpy_form_is_left_out_and_logged(
    load: Load, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(models / "several")
    assert set(model.signatures) == {"serving_default", "shout"}
    assert "signature opaque" in caplog.text
    assert "of type variant" in caplog.text


def test_a_folder_of_tensorflow_1_loads(load: Load, models: Path) -> None:
    model = load(models / "tensorflow_1")
    signature = model.signatures["serving_default"]
    assert (signature.batchable, signature.method) == (True, "predict")
    outputs = model.call("serving_default", {"x": np.array([[1, 1]], "float32")})
    assert outputs["y"].tolist() == [[3, 5]]


def test_a_version_folder_may_hold_one_keras_file(load: Load, models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "dense.keras", tmp_path / "model.keras")
    assert load(tmp_path).signatures["serving_default"].inputs[0].name == "x"


def test_the_warm_up_calls_each_signature(
    load: Load, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(models / "several")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        warm_up(model)
    assert caplog.records == []


def test_a_failed_warm_up_is_logged_and_no_more(
    load: Load, models: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        signatures = load(models / "several").signatures

        def call(self, signature: str, inputs: object) -> dict[str, np.ndarray]:
            raise RuntimeError(f"no {signature} today")

    warm_up(Broken())
    assert "no shout today" in caplog.text
