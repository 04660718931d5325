"""Models that cannot be loaded: each says what is wrong, of which file, and what to do."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import tensorflow as tf
from modelsup.worker.runtimes.base import LoadFailed
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime
from modelsup.worker.runtimes.tensorflow_errors import explain

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.worker.contract import LaunchSpec
    from modelsup.worker.runtimes.base import Model

    Load = Callable[[Path], Model]

pytestmark = pytest.mark.tensorflow

REFUSED = {
    "truncated.keras": "not a complete .keras file",
    "truncated.h5": "truncated file",
    "really_hdf5.keras": "Rename it to .h5",
    "photos.keras": "no config.json",
    "custom.keras": "uses the class Homemade.*export the model as a SavedModel",
    "custom.h5": "uses the layer Homemade.*export the model as a SavedModel",
    "lambda.keras": "Lambda layer.*safe mode refuses",
    "lambda.h5": "Lambda layer.*safe mode refuses",
    "only.weights.h5": "weights without a model",
    "unbuilt.keras": "shape of its inputs",
    "sparse.keras": "input x is sparse",
    "damaged": "damaged or truncated",
    "empty_graph": 'no graph with the tag "serve"',
    "unsigned": "has no signature. Export it with one",
    "opaque_only": "signature opaque: tensor opaque is of type variant",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_model_is_refused_in_words(load: Load, models: Path, name: str) -> None:
    with pytest.raises(LoadFailed, match=REFUSED[name]) as failure:
        load(models / name)
    assert failure.value.cause == "bad_model"
    assert str(models / name) in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_missing_file_is_refused(load: Load) -> None:
    with pytest.raises(LoadFailed, match=r"no file or folder /nowhere/x\.keras") as failure:
        load(Path("/nowhere/x.keras"))
    assert failure.value.cause == "load_error"


def test_no_source_is_refused(spec: LaunchSpec) -> None:
    with pytest.raises(LoadFailed, match="needs a source"):
        TensorFlowRuntime().load(spec)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("model.tflite", b"TFL3", "not a kind of model"),
        ("model.keras", b"", "is empty"),
        ("model.h5", b"no hdf5", "not an HDF5 file"),
        ("model.keras", b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_a_file_of_another_kind_is_refused(
    load: Load, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(LoadFailed, match=words):
        load(tmp_path / name)


def test_a_folder_of_several_models_is_refused(load: Load, models: Path, tmp_path: Path) -> None:
    shutil.copy(models / "dense.keras", tmp_path / "a.keras")
    shutil.copy(models / "dense.h5", tmp_path / "b.h5")
    with pytest.raises(LoadFailed, match=r"several models: a\.keras, b\.h5"):
        load(tmp_path)


def test_a_folder_without_a_model_is_refused(load: Load, tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"no saved_model\.pb and no \.keras"):
        load(tmp_path)


def test_one_file_of_a_saved_model_is_refused(load: Load, models: Path) -> None:
    with pytest.raises(LoadFailed, match="Name its folder"):
        load(models / "several" / "saved_model.pb")


def test_a_limit_that_cannot_work_is_refused(spec: LaunchSpec, models: Path) -> None:
    wrong = replace(spec, source=str(models / "dense.keras"), threads=0)
    with pytest.raises(LoadFailed, match="options of tested are wrong: threads"):
        TensorFlowRuntime().load(wrong)


@pytest.mark.parametrize(
    ("error", "on_gpu", "cause"),
    [
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), True, "cuda_oom"),
        (tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"), False, "host_oom"),
        (MemoryError("Unable to allocate 1.0 TiB"), True, "host_oom"),
    ],
)
def test_out_of_memory_says_which_memory(error: Exception, on_gpu: bool, cause: str) -> None:
    failure = explain(error, Path("/m/big.keras"), on_gpu=on_gpu)
    assert failure.cause == cause
    assert "/m/big.keras" in str(failure)
