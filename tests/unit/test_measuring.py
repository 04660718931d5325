"""A crowd that asks for one model has its files read once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from modelsup.supervisor.errors import BadSource
from modelsup.supervisor.fleet.measuring import Measuring


class Files:
    """Files whose reading takes until the gate opens."""

    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.gate = threading.Event()
        self.error: Exception | None = None

    def measure(self, path: str | None) -> tuple[int, str]:
        self.asked.append(path)
        self.gate.wait(20)
        if self.error is not None:
            raise self.error
        return 3, "abc"


async def crowd(measuring: Any, *paths: str) -> list[asyncio.Task[tuple[int, str]]]:
    """Return a task for each path that has begun to wait."""
    tasks = [asyncio.create_task(measuring.of(path)) for path in paths]
    await asyncio.sleep(0)
    return tasks


def test_one_reading_serves_all_who_ask_meanwhile() -> None:
    async def story() -> None:
        files = Files()
        measuring: Any = Measuring(files)  # type: ignore[arg-type]
        tasks = await crowd(measuring, "a", "a", "b", "a")
        tasks[0].cancel()  # who gives up must not take the answer from the others
        files.gate.set()
        assert await asyncio.gather(*tasks[1:]) == [(3, "abc")] * 3
        assert sorted(map(str, files.asked)) == ["a", "b"]
        assert await measuring.of("a") == (3, "abc")
        assert len(files.asked) == 3  # files may have changed since

    asyncio.run(story())


def test_an_error_reaches_all_of_them() -> None:
    async def story() -> None:
        files = Files()
        files.error = BadSource("it cannot be read")
        measuring: Any = Measuring(files)  # type: ignore[arg-type]
        tasks = await crowd(measuring, "a", "a")
        files.gate.set()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(found, BadSource)
        with pytest.raises(BadSource):
            await measuring.of("a")

    asyncio.run(story())
