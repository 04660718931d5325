"""Prepared models as workers meet them: made in one process, loaded in another."""

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

PROGRAM = Path(__file__).with_name("fork_prepared.py")
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SOURCES = ("wide.keras", "wide.h5", "wide_saved_model")


@pytest.fixture(scope="module")
def reports(kinds: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the process that loaded each prepared model saw."""
    folder = tmp_path_factory.mktemp("prepared")
    result = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), *(str(kinds / name) for name in SOURCES)],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **ONE_THREAD},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


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
