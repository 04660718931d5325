"""Triton's load generator, where one is installed that starts on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest
import requests

from tests.conftest import supervisors

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUTS = '{"inputs": {"x": {"dtype": "float32", "shape": [null, 4]}}}'


@pytest.fixture(scope="module")
def perf_analyzer() -> str:
    """The program. Its releases are built for a recent glibc."""
    program = shutil.which("perf_analyzer")
    if program is None:
        pytest.skip("no perf_analyzer here")
    tried = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60)
    if "Perf Analyzer Version" not in tried.stdout + tried.stderr:
        pytest.skip(f"perf_analyzer does not start here: {tried.stderr.strip()[:300]}")
    return program


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host and port of a supervisor with the model m, which is loaded."""
    models = tmp_path_factory.mktemp("models")
    (models / "m.echo").write_text(INPUTS)
    with supervisors(tmp_path_factory.mktemp("perf") / "home") as start:
        supervisor = start("--models-dir", str(models))
        url = f"{supervisor.url}/v2/repository/models/m/load"
        assert requests.post(url, json={}, timeout=60).ok
        yield supervisor.url.removeprefix("http://")


@pytest.mark.parametrize("flags", [[], ["-b", "8"], ["--async"], ["--input-tensor-format", "json"]])
def test_it_measures(perf_analyzer: str, address: str, flags: list[str]) -> None:
    """Its report has what it read from the model's statistics, beside what it saw itself."""
    command = [perf_analyzer, "-m", "m", "-u", address, "-i", "http", "--max-trials", "3"]
    steady = ["--measurement-interval", "300", "--stability-percentage", "100"]
    done = subprocess.run([*command, *steady, *flags], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = re.findall(r"(Request|Inference|Execution) count: (\d+)", done.stdout)
    assert [name for name, _ in counts] == ["Request", "Inference", "Execution"]
    assert all(int(count) > 0 for _, count in counts)
