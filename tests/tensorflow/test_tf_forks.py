"""The promise of the forkserver: a process that has only imported TensorFlow can fork workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

pytestmark = pytest.mark.tensorflow

PROGRAM = Path(__file__).with_name("fork_workers.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def reports(models: Path) -> list[dict[str, Any]]:
    """One report per child, then the parent's."""
    sources = [str(models / name) for name in ("dense.keras", "dense.h5", "dense_saved_model")]
    result = subprocess.run(
        [sys.executable, str(PROGRAM), *sources],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **ONE_THREAD},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_each_fork_predicts_rightly(reports: list[dict[str, Any]], models: Path) -> None:
    original = keras.models.load_model(models / "dense.keras", compile=False)
    expected = np.asarray(original(np.ones((1, 4), "float32"), training=False))
    children = reports[:-1]
    assert len(children) == 3
    for report in children:
        (output,) = report["outputs"].values()
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_the_parent_has_one_thread(reports: list[dict[str, Any]]) -> None:
    assert reports[-1] == {"threads": 1}


def test_a_load_imports_nothing_that_the_parent_could_have(reports: list[dict[str, Any]]) -> None:
    assert [report["imported"] for report in reports[:-1]] == [[], [], []]
