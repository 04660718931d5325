"""What the TensorFlow tests share: models made once, and an environment that is put back."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modelsup.worker.runtimes.base import Model

HERE = Path(__file__).parent

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"  # the same tests everywhere
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TensorFlow's own imports warn, differently by version
    TensorFlowRuntime().preload()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models that make_models.py makes."""
    return made_by("make_models.py", tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models that make_kinds.py makes."""
    return made_by("make_kinds.py", tmp_path_factory.mktemp("kinds"))


def made_by(program: str, folder: Path) -> Path:
    """Return the folder once the program beside this file has filled it."""
    command = [sys.executable, str(HERE / program), str(folder)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert result.returncode == 0, result.stderr[-3000:]
    return folder


@pytest.fixture
def spec(tmp_path: Path) -> LaunchSpec:
    """A launch spec without a source, for the CPU."""
    return LaunchSpec(
        uid="u1",
        model="tested",
        version="1",
        runtime="tensorflow",
        source=None,
        secret="s",
        temp_dir=str(tmp_path),
    )


@pytest.fixture
def load(spec: LaunchSpec) -> Iterator[Callable[[Path], Model]]:
    """Load a model in this process; the environment is put back at the end."""
    before = dict(os.environ)
    yield lambda path: TensorFlowRuntime().load(replace(spec, source=str(path)))
    os.environ.clear()
    os.environ.update(before)
