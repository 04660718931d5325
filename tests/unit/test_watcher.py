"""The memory watcher, on real processes that take memory when they are told to."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor.adapters.host import process_memory
from modelsup.supervisor.adapters.watcher import MemoryWatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from modelsup.supervisor.domain import Memory

    Start = Callable[[str], subprocess.Popen[str]]

MB = 1024 * 1024

# Takes as many MB as a line says, of its own or shared with a child; says so.
EATER = """
import mmap, os, sys
kept = []

def share(size):
    shared = mmap.mmap(-1, size)
    shared.write(b"x" * size)
    end, ours = os.pipe()
    said, theirs = os.pipe()
    if os.fork() == 0:
        os.close(ours)
        sum(shared[::4096])
        os.write(theirs, b"x")
        os.read(end, 1)
        os._exit(0)
    os.read(said, 1)
    return shared, ours

for line in sys.stdin:
    kind, size = line.split()
    size = int(size) << 20
    kept.append(share(size) if kind == "shared" else bytearray(b"x") * size)
    print("done", flush=True)
"""


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python programs that talk line by line, and collect them after the test."""
    started: list[subprocess.Popen[str]] = []

    def _start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def eat(process: subprocess.Popen[str], order: str) -> None:
    """Have an eater take memory; return once it has."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{order}\n")
    assert process.stdout.readline() == "done\n"


class Reader:
    """Reads memory exactly; keeps whom it read, and tells a test of each."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.looked = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def __call__(self, pid: int) -> Memory | None:
        memory = process_memory(pid)
        self.pids.append(pid)
        self._loop.call_soon_threadsafe(self.looked.set)
        return memory


class Told:
    """Takes what the watcher tells."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []
        self.event = asyncio.Event()

    def __call__(self, pid: int, used: int) -> None:
        self.calls.append((pid, used))
        self.event.set()


def run(test: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test
        assert watcher_tasks() == []

    asyncio.run(bounded())


def watcher_tasks() -> list[asyncio.Task[object]]:
    return [
        t for t in asyncio.all_tasks() if t.get_name() == "memory watcher" and not t.cancelling()
    ]


def test_a_process_past_its_limit_is_told_of_once(start: Start) -> None:
    async def test() -> None:
        process, told, bystander = start(EATER), Told(), Told()
        watcher = MemoryWatcher(0.01)
        watcher.watch(process.pid, 60 * MB, told)
        watcher.watch(os.getpid(), 1 << 40, bystander)
        await asyncio.to_thread(eat, process, "private 80")
        await told.event.wait()
        told.event.clear()
        watcher.watch(process.pid, 90 * MB, told)  # anew
        await asyncio.to_thread(eat, process, "private 20")
        await told.event.wait()
        watcher.close()
        (pid, first), (_, second) = told.calls
        assert pid == process.pid
        assert 60 * MB < first < 110 * MB
        assert second > 90 * MB
        assert bystander.calls == []

    run(test())


def test_memory_that_is_shared_does_not_count(start: Start) -> None:
    async def test() -> None:
        process, told, reader = start(EATER), Told(), Reader()
        await asyncio.to_thread(eat, process, "shared 80")
        watcher = MemoryWatcher(0.01, reader)
        watcher.watch(process.pid, 60 * MB, told)
        await reader.looked.wait()
        assert told.calls == []
        await asyncio.to_thread(eat, process, "private 70")
        await told.event.wait()
        assert 60 * MB < told.calls[0][1] < 120 * MB

    run(test())


def test_the_exact_look_is_spared_while_it_cannot_be_over(start: Start) -> None:
    async def test() -> None:
        small, large, told, reader = start(EATER), start(EATER), Told(), Reader()
        await asyncio.to_thread(eat, small, "private 1")
        await asyncio.to_thread(eat, large, "private 50")
        watcher = MemoryWatcher(0.001, reader)
        watcher.watch(small.pid, 1 << 40, told)
        watcher.watch(large.pid, 30 * MB, told)
        await told.event.wait()
        watcher.close()
        assert reader.pids == [large.pid]

    run(test())


def test_a_process_that_ends_is_forgotten(start: Start) -> None:
    async def test() -> None:
        process, told = start(""), Told()
        process.wait()
        watcher = MemoryWatcher(0.001)
        watcher.watch(process.pid, 1, told)
        (task,) = watcher_tasks()
        await task  # ends when nothing is left to watch
        assert told.calls == []
        watcher.watch(os.getpid(), 1, told)  # and starts again
        await told.event.wait()

    run(test())


def test_a_process_is_not_told_of_once_it_is_unwatched(start: Start) -> None:
    """It is forgotten while the exact look goes on in a thread."""

    async def test() -> None:
        first, second = start(EATER), start(EATER)
        for process in (first, second):
            await asyncio.to_thread(eat, process, "private 1")
        told, told_of_second = Told(), Told()
        loop, looking, gate = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

        def read(pid: int) -> Memory | None:
            loop.call_soon_threadsafe(looking.set)
            gate.wait()
            return process_memory(pid)

        watcher = MemoryWatcher(0.001, read)
        watcher.watch(first.pid, 1, told)
        watcher.watch(second.pid, 1, told_of_second)
        await looking.wait()
        watcher.unwatch(first.pid)
        watcher.unwatch(first.pid)
        gate.set()
        await told_of_second.event.wait()
        assert told.calls == []

    run(test())


def test_nothing_runs_once_the_last_is_unwatched() -> None:
    async def test() -> None:
        watcher = MemoryWatcher()
        watcher.watch(os.getpid(), 1 << 40, Told())
        (task,) = watcher_tasks()
        watcher.unwatch(os.getpid())
        with pytest.raises(asyncio.CancelledError):
            await task

    run(test())


def test_one_that_cannot_be_acted_on_does_not_end_the_watch(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(pid: int, used: int) -> None:
        raise ProcessLookupError(pid)

    async def test() -> None:
        process, told = start(EATER), Told()
        await asyncio.to_thread(eat, process, "private 1")
        watcher = MemoryWatcher(0.001)
        watcher.watch(process.pid, 1, fail)
        watcher.watch(os.getpid(), 1, told)
        await told.event.wait()

    run(test())
    assert "nobody could act on a process over its limit" in caplog.text


def test_who_is_told_may_kill_and_unwatch(start: Start) -> None:
    async def test() -> None:
        process = start(EATER)
        watcher = MemoryWatcher(0.001)

        def kill(pid: int, used: int) -> None:
            os.kill(pid, signal.SIGKILL)
            watcher.unwatch(pid)

        watcher.watch(process.pid, 1, kill)
        assert await asyncio.to_thread(process.wait) == -signal.SIGKILL

    run(test())
