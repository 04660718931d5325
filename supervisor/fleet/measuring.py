"""Measures the files of models in threads; who asks for the same ones meanwhile shares the answer.

A model that was never read before takes a while, and a crowd may ask for it at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ports import Sources

    Measure = asyncio.Task[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one version of a model."""

    version: str
    path: str | None  # absolute; None where the runtime needs no file
    size: int  # bytes
    digest: str  # of what is in them


class Measuring:
    """At most one reading of each path at a time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._running: dict[str | None, Measure] = {}

    async def of(self, path: str | None) -> tuple[int, str]:
        """Return (size in bytes, digest) of the files of a model. Raises BadSource."""
        task = self._running.get(path)
        if task is None:
            reading = asyncio.to_thread(self._sources.measure, path)
            task = self._running[path] = asyncio.get_running_loop().create_task(reading)
            task.add_done_callback(lambda done: self._over(path, done))
        return await asyncio.shield(task)

    def _over(self, path: str | None, task: Measure) -> None:
        del self._running[path]
        if not task.cancelled():
            task.exception()  # whoever waits takes it; they may have gone
