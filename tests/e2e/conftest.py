"""What end-to-end tests share: a supervisor for each file, and one small Keras model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import supervisors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Supervisor

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def module_supervisor(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Supervisor]:
    """The supervisor that the tests of a file share, with the file's FLAGS if it has any."""
    with supervisors(tmp_path_factory.mktemp("shared") / "home") as start:
        yield start(*getattr(request.module, "FLAGS", ()))


@pytest.fixture(scope="session")
def tiny_keras(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A .keras file of 67 parameters: 4 inputs, 3 outputs."""
    folder = tmp_path_factory.mktemp("keras")
    command = [sys.executable, "-m", "benchmarks.models", str(folder), "tiny"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=100)
    return folder / "tiny.keras"
