"""The files of a prepared model: what is in them, and what happens when they do not fit."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest
from modelsup.worker.runtimes import (
    prepared_folding,
    prepared_freezing,
    prepared_loading,
    private_tensorflow,
)
from modelsup.worker.runtimes.base import NotPreparable
from modelsup.worker.runtimes.prepared_layout import (
    ALIGNMENT,
    FUNCTIONS,
    INDEX,
    WEIGHTS,
    read_index,
    write_index,
)
from modelsup.worker.runtimes.prepared_weights import MAPPED, WeightsWriter, map_weights
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from modelsup.worker.contract import LaunchSpec

pytestmark = pytest.mark.tensorflow

RUNTIME = TensorFlowRuntime()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty folder."""
    folder = tmp_path / "prepared"
    folder.mkdir()
    return folder


@pytest.fixture
def prepare(spec: LaunchSpec, folder: Path) -> Iterator[Callable[[Path], None]]:
    """Prepare a model into `folder`; the environment is put back at the end."""
    before = dict(os.environ)
    yield lambda path: RUNTIME.prepare(replace(spec, source=str(path)), folder)
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def wide(prepare: Callable[[Path], None], kinds: Path, folder: Path) -> Path:
    """A folder with the prepared form of a model that has weights."""
    prepare(kinds / "wide.keras")
    return folder


@pytest.mark.parametrize("dtype", sorted(MAPPED))
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 4), (2, 3, 5)])
def test_a_weight_comes_back_as_it_was(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    array = np.arange(1, size + 1).reshape(shape).astype(dtype)
    with (tmp_path / WEIGHTS).open("wb") as stream:
        writer = WeightsWriter(stream)
        writer.add("uint8", np.ones(1, "uint8"))  # so that the next does not start at 0
        position = writer.add(dtype, array)
        end = stream.tell()
    tensor = map_weights(tmp_path, writer.weights, end)[position]
    assert tensor.dtype.name == dtype
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_equal_weights_are_written_once_and_aligned(tmp_path: Path) -> None:
    ones = np.ones((2, 3), "float32")
    with (tmp_path / WEIGHTS).open("wb") as stream:
        writer = WeightsWriter(stream)
        added = [
            writer.add("float32", ones),
            writer.add("float32", ones.copy()),
            writer.add("float32", ones.T),  # another shape, and not contiguous
            writer.add("int32", ones.view("int32")),  # the same bytes of another type
            writer.add("bfloat16", ones.astype(ml_dtypes.bfloat16)),
        ]
    assert added == [0, 0, 1, 2, 3]
    assert [weight.offset % ALIGNMENT for weight in writer.weights] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", [INDEX, FUNCTIONS, WEIGHTS])
def test_a_missing_file_is_an_error(spec: LaunchSpec, wide: Path, name: str) -> None:
    (wide / name).unlink()
    with pytest.raises(FileNotFoundError, match=name):
        RUNTIME.load_prepared(spec, wide)


@pytest.mark.parametrize("name", [INDEX, FUNCTIONS])
def test_a_change_of_any_byte_is_noticed(spec: LaunchSpec, wide: Path, name: str) -> None:
    content = (wide / name).read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        (wide / name).write_bytes(damaged)
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            RUNTIME.load_prepared(spec, wide)
    (wide / name).write_bytes(content)
    RUNTIME.load_prepared(spec, wide)


@pytest.mark.parametrize("name", [INDEX, FUNCTIONS, WEIGHTS])
def test_a_file_of_another_length_is_refused(spec: LaunchSpec, wide: Path, name: str) -> None:
    size = (wide / name).stat().st_size
    for length in (size + 1, size - 1, size // 2, 64, 1, 0):
        os.truncate(wide / name, length)
        with pytest.raises(ValueError, match=f"{name} (is damaged|has {length} bytes, not {size})"):
            RUNTIME.load_prepared(spec, wide)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        (r"TensorFlow \S+", "TensorFlow 2.1"),
        (r"oneDNN=\S+", "oneDNN=other"),
        (r"format \d+", "format 0"),
    ],
)
def test_the_form_of_another_release_is_refused(
    spec: LaunchSpec, wide: Path, part: str, other: str
) -> None:
    index = read_index(wide)
    write_index(wide, replace(index, made_by=re.sub(part, other, index.made_by)))
    with pytest.raises(NotPreparable, match=f"prepared by .*{other}.*, and this is .*{part}"):
        RUNTIME.load_prepared(spec, wide)


def test_the_form_for_a_cpu_is_refused_on_a_gpu(wide: Path) -> None:
    """It has operations that only a CPU knows."""
    with pytest.raises(NotPreparable, match="prepared for a cpu, and this is a gpu"):
        prepared_loading.load(wide, on_gpu=True)


@pytest.mark.parametrize("gone", ["tensorflow.python.eager.execute:gone", "tensorflow.gone:x"])
def test_a_private_name_that_is_gone_is_named(
    spec: LaunchSpec,
    prepare: Callable[[Path], None],
    wide: Path,
    kinds: Path,
    monkeypatch: pytest.MonkeyPatch,
    gone: str,
) -> None:
    message = f"has no {gone.replace(':', '.')}, which a prepared model needs"
    monkeypatch.setattr(private_tensorflow, "FOR_PREPARING", (gone,))
    with pytest.raises(NotPreparable, match=message):
        prepare(kinds / "wide.keras")
    monkeypatch.setattr(private_tensorflow, "FOR_LOADING", (gone,))
    with pytest.raises(NotPreparable, match=message):
        RUNTIME.load_prepared(spec, wide)


@pytest.mark.parametrize("name", ["wide.keras", "gathers", "loops", "attention.keras"])
def test_weights_too_large_for_a_graph_are_never_in_one(
    prepare: Callable[[Path], None],
    kinds: Path,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    """Protobuf ends at 2 GiB; with the limit at nothing all weights take the other way."""
    monkeypatch.setattr(prepared_freezing, "MOST_IN_A_GRAPH", 0)
    prepare(kinds / name)
    assert (folder / WEIGHTS).stat().st_size > 4096


def test_a_graph_that_stays_too_large_is_refused(
    prepare: Callable[[Path], None], kinds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepared_folding, "MOST_BYTES", 100)
    with pytest.raises(NotPreparable, match=r"serving_default has a graph of \d+ bytes beside its"):
        prepare(kinds / "wide.keras")


def test_for_a_gpu_nothing_is_fused(
    spec: LaunchSpec, kinds: Path, folder: Path, prepare: object
) -> None:
    """Which operations are fused, and how, differs by device; the rest is the same."""
    gpu = replace(spec, source=str(kinds / "wide.keras"), prepare_for="gpu")
    RUNTIME.prepare(gpu, folder)
    assert b"_Fused" not in (folder / FUNCTIONS).read_bytes()
    assert RUNTIME.load_prepared(spec, folder).signatures["serving_default"].batchable


def test_for_a_gpu_a_loop_is_refused(
    spec: LaunchSpec, kinds: Path, folder: Path, prepare: object
) -> None:
    gpu = replace(spec, source=str(kinds / "lstm.keras"), prepare_for="gpu")
    with pytest.raises(NotPreparable, match="goes step by step"):
        RUNTIME.prepare(gpu, folder)
