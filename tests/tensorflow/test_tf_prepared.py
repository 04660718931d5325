"""Prepared models as workers meet them: made in one process, loaded in another."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import psutil
import pytest

from tests.tensorflow.conftest import made_by

pytestmark = pytest.mark.tensorflow

PROGRAM = Path(__file__).with_name("fork_prepared.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SOURCES = ("wide.keras", "wide.h5", "wide_saved_model")
LARGE_MEMORY, LARGE_DISK = 10 * 10**9, 6 * 10**9  # bytes: what a model of 2.25 GB takes


def prepared_in_forks(folder: Path, *sources: Path) -> list[dict[str, Any]]:
    """Return what the process that loaded each prepared model saw."""
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *map(str, sources)],
        capture_output=True,
        text=True,
        timeout=250,
        env={**os.environ, **ONE_THREAD},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture(scope="module")
def reports(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The reports on SOURCES."""
    folder = tmp_path_factory.mktemp("prepared")
    return prepared_in_forks(folder, *(kinds / name for name in SOURCES))


def test_the_first_answer_of_each_fork_is_right(reports: list[dict[str, Any]], kinds: Path) -> None:
    original = keras.models.load_model(kinds / "wide.keras", compile=False)
    expected = np.asarray(original(np.ones((1, 8, 8, 3), "float32"), training=False))
    assert len(reports) == len(SOURCES)
    for report in reports:
        (output,) = report["outputs"].values()
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_the_weights_stay_pages_of_the_file(reports: list[dict[str, Any]]) -> None:
    assert [report["copied_weights"] for report in reports] == [0, 0, 0]


def test_a_load_imports_nothing_that_the_parent_could_have(reports: list[dict[str, Any]]) -> None:
    assert [report["imported"] for report in reports] == [[], [], []]


@pytest.mark.timeout(400)
@pytest.mark.skipif(
    psutil.virtual_memory().available < LARGE_MEMORY, reason="needs 10 GB of free memory"
)
def test_a_model_over_2_gib_is_prepared_and_mapped(tmp_path: Path) -> None:
    """Protobuf ends at 2 GiB, and 31 bits do."""
    if shutil.disk_usage(tmp_path).free < LARGE_DISK:
        pytest.skip("needs 6 GB of free disk")
    try:
        source = made_by("make_large.py", tmp_path) / "large"
        (report,) = prepared_in_forks(tmp_path, source)
        assert (tmp_path / "0" / "weights.bin").stat().st_size > 2**31
    finally:
        for folder in ("large", "0"):
            shutil.rmtree(tmp_path / folder, ignore_errors=True)
    assert report["outputs"] == {"first": [[1.0] * 64], "last": [[8_799_999.0] * 64]}
    assert report["copied_weights"] == 0
