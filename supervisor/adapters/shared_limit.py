"""The memory that the machine or a container has for all: whether the kernel killed for want of it.

The kernel counts the processes of a cgroup that it killed, whatever limit they met with: the
group's own, that of a group above it, or the end of the machine's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..domain import Overuse
from .cgroup import oom_kills
from .host import PROC, cgroup_folders, memory_limit

if TYPE_CHECKING:
    from pathlib import Path

_COUNTS: Final = {  # the file that counts, by the file that holds the limit
    "memory.max": "memory.events",
    "memory.limit_in_bytes": "memory.oom_control",
}


class SharedLimit:
    """Tells of workers that are killed though they kept to their own limit, or have none."""

    def __init__(self, counts: Path | None) -> None:
        """`counts` has a line "oom_kill N"; None where the kernel tells nothing."""
        self._counts = counts
        self._seen = self._count()

    def overuse(self, used: int) -> Overuse | None:
        """Return the end of a worker that was just killed, if it was for want of memory.

        It was if the kernel has killed since the last look. `used` is the most, in bytes, that
        the worker had.
        """
        before, self._seen = self._seen, self._count()
        return Overuse(memory_limit(), used, shared=True) if self._seen > before else None

    def _count(self) -> int:
        return oom_kills(self._counts) if self._counts is not None else 0


def find_shared_limit() -> SharedLimit:
    """Return the limit of the cgroup in which this process, and what it starts, is now."""
    try:
        membership = (PROC / "self/cgroup").read_text()
        mounts = (PROC / "self/mountinfo").read_text()
    except OSError:
        return SharedLimit(None)
    own = next(cgroup_folders(membership, mounts), None)
    return SharedLimit(own[0] / _COUNTS[own[1]] if own else None)
