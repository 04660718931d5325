"""Caps on the host memory of processes on machines where no cgroup holds them."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .host import PROC, process_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..domain import Memory

logger = logging.getLogger(__name__)

INTERVAL: Final = 0.25  # seconds between two looks at a process
EXACT_INTERVAL: Final = 5.0  # seconds; an exact look costs 10 to 20 ms at 500 MB resident

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class _Watched:
    """A process, and what the last exact look found. All sizes are in bytes."""

    limit: int
    on_over: Callable[[int, int], None]
    private: int = 0
    resident: int = 0  # the least since then
    looked_at: float = 0.0  # on the clock of the event loop

    def may_be_over(self, resident: int, now: float) -> bool:
        """Tell whether an exact look is due.

        New private pages are resident ones. What was shared may become private without a trace:
        that is left to the look that comes at the latest after `EXACT_INTERVAL`.
        """
        if resident <= self.limit:
            return False
        self.resident = min(self.resident, resident)
        grown = self.private + resident - self.resident
        return grown > self.limit or now - self.looked_at >= EXACT_INTERVAL


class MemoryWatcher:
    """Tells when the private memory of a process passes its limit, within about `interval` s.

    Lives on the event loop. A look reads one short file; `read`, which walks a process's page
    tables, is called in a thread and only where the short file leaves it open.
    """

    def __init__(
        self,
        interval: float = INTERVAL,
        read: Callable[[int], Memory | None] = process_memory,
    ) -> None:
        self._interval = interval
        self._read = read
        self._watched: dict[int, _Watched] = {}
        self._task: asyncio.Task[None] | None = None

    def watch(self, pid: int, limit: int, on_over: Callable[[int, int], None]) -> None:
        """Call `on_over(pid, private bytes)` once when the process has more than `limit` bytes.

        A process that ends is forgotten.
        """
        self._watched[pid] = _Watched(limit, on_over)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name="memory watcher")

    def unwatch(self, pid: int) -> None:
        """Forget a process, if it is watched."""
        self._watched.pop(pid, None)
        if not self._watched:
            self.close()

    def close(self) -> None:
        """Forget all processes."""
        self._watched.clear()
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while self._watched:
            await asyncio.sleep(self._interval)
            for pid, watched in list(self._watched.items()):
                await self._look(pid, watched)
        self._task = None

    async def _look(self, pid: int, watched: _Watched) -> None:
        now = asyncio.get_running_loop().time()
        resident = _resident(pid)
        if resident is None:
            self._forget(pid, watched)
        elif watched.may_be_over(resident, now):
            memory = await asyncio.to_thread(self._read, pid)
            if memory is None:
                self._forget(pid, watched)
                return
            watched.private, watched.resident, watched.looked_at = memory.uss, resident, now
            if memory.uss > watched.limit and self._forget(pid, watched):
                self._tell(pid, watched)

    def _forget(self, pid: int, watched: _Watched) -> bool:
        """Forget this process; False if that was done while we looked."""
        if self._watched.get(pid) is not watched:
            return False
        del self._watched[pid]
        return True

    def _tell(self, pid: int, watched: _Watched) -> None:
        try:
            watched.on_over(pid, watched.private)
        except Exception:
            logger.exception("nobody could act on a process over its limit", extra={"pid": pid})


def _resident(pid: int) -> int | None:
    """Return the bytes of a process that are in memory; None if it is gone."""
    try:
        fields = (PROC / str(pid) / "statm").read_bytes().split()
    except OSError:
        return None
    return int(fields[1]) * _PAGE
