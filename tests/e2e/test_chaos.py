"""While models swap and workers are killed each request is answered, or told to come again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_answer_is_wrong_and_none_is_lost_untold(tmp_path: Path) -> None:
    target = tmp_path / "chaos.json"
    load = ["--clients", "16", "--seconds", "5", "--kill-every", "1", "--json", str(target)]
    command = [sys.executable, "-m", "benchmarks", "chaos", *load]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(target.read_text())
    assert told["problems"] == []
    assert told["events"]["restart: a worker crashed"] >= 1
    assert told["events"]["eviction: evicting"] >= 1
    assert told["answers"] > told["clients"]
