"""What the supervisor may spend of this machine's memory, and what it takes itself."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from .host import memory_limit, process_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FRESH: Final = 5.0  # seconds; the exact count of a process walks all its pages


class LocalHost:
    """This machine. `helpers` are the pids of the forkservers."""

    def __init__(self, helpers: Callable[[], Iterable[int]]) -> None:
        self._helpers = helpers
        self._own = self._limit = 0
        self._measured_at = float("-inf")

    def memory_limit(self) -> int:
        """Return the bytes that supervisor and workers may use: of the cgroup, or the machine."""
        self._measure()
        return self._limit

    def own_memory(self) -> int:
        """Return the bytes that the supervisor and its forkservers take; a few seconds old.

        Weights that are held in the page cache do not count: they give way to any load.
        """
        self._measure()
        return self._own

    def _measure(self) -> None:
        now = time.monotonic()
        if now - self._measured_at > FRESH:
            self._measured_at = now
            self._limit = memory_limit()
            pids = [os.getpid(), *self._helpers()]
            found = [m for pid in pids if (m := process_memory(pid)) is not None]
            self._own = sum(memory.pss - memory.locked for memory in found)
