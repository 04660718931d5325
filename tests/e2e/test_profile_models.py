"""`modelsup profile` on an image model, from a .keras file and from a SavedModel."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.browser import drawn
from tests.e2e.conftest import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def mobilenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with MobileNetV2 as a .keras file and as a SavedModel."""
    folder = tmp_path_factory.mktemp("mobilenet")
    command = [sys.executable, "-m", "benchmarks.models", str(folder), "mobilenet"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=200)
    return folder


@pytest.mark.parametrize("form", ["mobilenet.keras", "mobilenet_savedmodel"])
def test_its_page_has_the_plots_and_its_advice_holds(
    start_supervisor: Callable[..., Any], mobilenet: Path, tmp_path: Path, form: str
) -> None:
    supervisor, page = start_supervisor(), tmp_path / "page.html"
    source = str(mobilenet / form)
    arguments = ("--instances", "1,2", "--html", str(page), "--json")

    found = json.loads(supervisor.run("profile", source, *arguments).stdout)

    assert [row["instances"] for row in found["measured"]["rows"]] == [1, 2]
    assert [row["instances"] for row in found["pool"]["rows"]] == [1, 2]
    seen = drawn(page, tmp_path / "browser")
    assert seen.count('class="plot-container') == 2
    assert "clients on one worker</text>" in seen
    assert "after the first call</text>" in seen
    advice = found["advice"]["ram_bytes"]
    assert f"--ram {advice // 10**6}MB" in seen
    supervisor.run("load", "m", source, "--ram", str(advice))
    for rows in (1, 8):
        x = np.zeros((rows, 224, 224, 3), np.float32)
        assert supervisor.client.predict("m", x).shape == (rows, 1000)
    (worker,) = supervisor.client.workers()
    assert (worker.restarts, worker.guard is not None) == (0, True)
