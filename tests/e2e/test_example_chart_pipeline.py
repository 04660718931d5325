"""The example with a pipeline of charts runs in all modes and judges what it saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
def test_charts_are_read_in_every_mode_with_the_same_answers() -> None:
    for package in ("tensorflow", "matplotlib", "PIL"):
        pytest.importorskip(package)
    command = [sys.executable, "-m", "examples.chart_pipeline.run", "--small", "--charts", "6"]
    done = subprocess.run(
        [*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    modes = [row["mode"] for row in told["modes"]]
    assert modes == ["in a file, unprepared", "in a file", "in RAM", "loaded"]
    assert set(told["errors"]) == {"bar_highest", "line_trend", "line_roughness", "pie_largest"}
    for row in told["modes"]:
        assert [reading["kind"] for reading in row["readings"]] == ["bar", "line", "pie"] * 2
        assert row["ram_peak"] >= row["ram_idle"] > 0
