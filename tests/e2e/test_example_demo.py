"""The demo, which is the README's first command: every check in it holds."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("tensorflow")


def test_the_demo_ends_with_its_memory_back() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"], capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "All models are gone" in done.stdout
    assert "alice's failed requests: 0" in done.stdout
