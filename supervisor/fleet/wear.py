"""When a worker is worn out: it has served so many requests, or its memory has grown so much."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from .worker import Worker

LOOK: Final = 1.0  # seconds between two looks at a worker that serves
LOOK_AGAIN: Final = 30.0  # seconds until a worker that was found worn, and is still there, is told


@dataclass(frozen=True, slots=True)
class Wear:
    """What a worker may serve and grow to before another takes its place. 0: without end."""

    requests: int = 0
    memory: int = 0  # private bytes of host memory
    drain: float = 300.0  # seconds that its last requests have; none takes longer


class WearWatch:
    """Looks at one ready worker once a second, beside its requests, until it is closed.

    `on_worn` gets the reason. Memory is read only when requests have ended since the last look,
    and never counts for a worker that needed as much when it was new: another would not do better.
    """

    def __init__(self, worker: Worker, wear: Wear, on_worn: Callable[[Worker, str], None]) -> None:
        self._worker = worker
        self._wear = wear
        self._on_worn = on_worn
        self._task = asyncio.get_running_loop().create_task(self._run(), name="wear watch")

    def close(self) -> None:
        """Look no more."""
        self._task.cancel()

    async def _run(self) -> None:
        seen = 0.0
        while True:
            await asyncio.sleep(LOOK)
            traffic = self._worker.traffic
            if traffic.last_end == seen:
                continue
            seen = traffic.last_end
            reason = await self._find()
            if reason is not None:
                self._on_worn(self._worker, reason)
                await asyncio.sleep(LOOK_AGAIN)

    async def _find(self) -> str | None:
        served, most = self._worker.traffic.total, self._wear.requests
        if most and served >= most:
            return f"it has served {served} requests, {most} or more"
        ceiling, handle = self._wear.memory, self._worker.handle
        if not ceiling or handle is None or self._worker.memory.get("steady", 0) >= ceiling:
            return None
        memory = await asyncio.to_thread(handle.memory)
        if memory is None or memory.uss <= ceiling:
            return None
        return f"it has grown to {memory.uss} bytes, over {ceiling}"
