"""A launched worker on this machine: its process, descriptors and end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import shutil
import signal
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from modelsup.worker.contract import GO_ON

from ..domain import Exit, Memory
from .host import collect, process_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .guard import Guard
    from .logs import PipeReader
    from .shared_limit import SharedLimit
    from .upstream import HttpUpstream

REPORT_WAIT: Final = 1.0  # seconds that a forkserver has to report an exit that the pidfd showed


class Parent(Protocol):
    """The forkserver of a worker, as the worker's handle sees it."""

    @property
    def alive(self) -> bool:
        """Whether it will still report exits."""
        ...


@dataclass(slots=True)
class WorkerPipes:
    """The supervisor's ends, and the ends that travel to the worker."""

    address: tuple[str, int]
    lifeline: int  # write end, kept open for as long as the worker may live
    log: int  # read end
    status: int  # read end
    theirs: tuple[int, int, int, int]  # listener, log, lifeline, status

    @classmethod
    def open(cls) -> WorkerPipes:
        """Bind a loopback port and make the pipes. Raises OSError, leaving nothing open."""
        with contextlib.ExitStack() as undo:
            listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
            undo.callback(listener.close)
            ends: list[int] = []
            for _ in range(3):
                ends.extend(os.pipe2(os.O_CLOEXEC))
                undo.callback(os.close, ends[-1])
                undo.callback(os.close, ends[-2])
            undo.pop_all()
        log_read, log_write, life_read, life_write, status_read, status_write = ends
        address: tuple[str, int] = listener.getsockname()[:2]
        theirs = (listener.detach(), log_write, life_read, status_write)
        return cls(address, life_write, log_read, status_read, theirs)

    def close_theirs(self) -> None:
        """Close the worker's ends once they have been sent; the worker is then their only owner."""
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = ()  # type: ignore[assignment]

    def close(self) -> None:
        """Close what is still open, after a launch that failed."""
        self.close_theirs()
        for descriptor in (self.lifeline, self.log, self.status):
            os.close(descriptor)


class LocalHandle:
    """One worker process, seen through its pidfd and its forkserver's report."""

    def __init__(
        self,
        pid: int,
        pidfd: int,
        *,
        lifeline: int,
        readers: tuple[PipeReader, ...],
        upstream: HttpUpstream,
        temp_dir: Path,
        parent: Parent,
        guard: Guard | None,
        shared_limit: SharedLimit,
        on_disposed: Callable[[], None],
    ) -> None:
        self.pid = pid
        self.upstream = upstream
        self._pidfd = pidfd
        self._lifeline = lifeline
        self._readers = readers
        self._temp_dir = temp_dir
        self._parent = parent
        self._guard = guard
        self._shared_limit = shared_limit
        self._on_disposed = on_disposed
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[Exit] = self._loop.create_future()
        self._report: asyncio.Future[Exit] = self._loop.create_future()
        self._collecting: asyncio.Task[None] | None = None
        self._loop.add_reader(pidfd, self._on_end)
        if guard is not None:
            guard.start(pid, self.kill)

    @property
    def guard(self) -> str | None:
        """What holds it to its limit of host memory."""
        return self._guard.kind if self._guard else None

    def on_report(self, report: Exit) -> None:
        """Take the forkserver's word on how the process ended."""
        if not self._report.done():
            self._report.set_result(report)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        self._collecting = self._loop.create_task(self._collect())

    async def _collect(self) -> None:
        if self._parent.alive:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_WAIT):
                    self._set_exit(await asyncio.shield(self._report))
                    return
        # The forkserver is gone, so the process was ours to collect: we are the subreaper.
        self._set_exit(exit_of_status(collect(self.pid)))

    def _set_exit(self, end: Exit) -> None:
        if end.signal == signal.SIGKILL:
            own = self._guard.overuse() if self._guard else None
            end = replace(end, overuse=own or self._shared_limit.overuse(end.max_rss))
        self._exit.set_result(end)

    async def exited(self) -> Exit:
        """Wait for the end of the process."""
        return await asyncio.shield(self._exit)

    def go_on(self) -> None:
        """Let a worker go on that stands still so that its GPU context can be measured."""
        if not self.ended:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, GO_ON)

    def terminate(self) -> None:
        """Send SIGTERM to the worker's process group."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the worker's process group, and to all that is in its cgroup."""
        self._signal_group(signal.SIGKILL)
        if self._guard is not None:
            self._guard.kill()

    def _signal_group(self, number: signal.Signals) -> None:
        if self.ended:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)  # no group yet in a child that has not run: next line
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    @property
    def ended(self) -> bool:
        """Whether the process has ended, be it collected or not."""
        if self._exit.done():
            return True
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def memory(self) -> Memory | None:
        """Measure the worker's own host memory; None when it is gone."""
        return None if self.ended else process_memory(self.pid)

    def dispose(self) -> None:
        """Remove what the worker leaves: descriptors, orphans, temporary folder."""
        self._loop.remove_reader(self._pidfd)
        for reader in self._readers:
            reader.drain()
            reader.close()
        self.upstream.close()
        os.close(self._lifeline)
        os.close(self._pidfd)
        shutil.rmtree(self._temp_dir, ignore_errors=True)
        if self._guard is not None:
            self._guard.kill()
        self._on_disposed()
        if self._guard is not None:
            self._guard.close()  # the last, for orphans have to be collected before


def exit_of_status(status: int | None) -> Exit:
    """Turn a wait status into an Exit; None stands for a status that nobody knows."""
    if status is None:
        return Exit()
    if os.WIFSIGNALED(status):
        return Exit(signal=os.WTERMSIG(status))
    return Exit(code=os.WEXITSTATUS(status))
