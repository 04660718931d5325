"""Whether the kernel has killed for want of memory, told from how often it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from modelsup.supervisor.adapters.host import memory_limit
from modelsup.supervisor.adapters.shared_limit import SharedLimit
from modelsup.supervisor.domain import Overuse

if TYPE_CHECKING:
    from pathlib import Path

MB = 10**6


def test_each_kill_by_the_kernel_is_told_once(tmp_path: Path) -> None:
    """What was killed before the start, and what others kill, is no end for want of memory."""
    counts = tmp_path / "memory.events"
    counts.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    shared = SharedLimit(counts)
    assert shared.overuse(100 * MB) is None
    counts.write_text("low 0\noom 4\noom_kill 3\noom_group_kill 0\n")
    assert shared.overuse(100 * MB) == Overuse(memory_limit(), 100 * MB, shared=True)
    assert shared.overuse(100 * MB) is None


def test_a_kernel_that_does_not_count(tmp_path: Path) -> None:
    for counts in (None, tmp_path / "nothing", tmp_path):
        assert SharedLimit(counts).overuse(MB) is None
