"""Starts workers on this machine: one forkserver per runtime, a handle per worker."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from modelsup.worker.contract import StatusMessage

from .forkserver import Forkserver, ForkserverError, ForkserverGone
from .handle import LocalHandle, WorkerPipes
from .host import kill_orphans
from .logs import LogBook, PipeReader
from .upstream import HttpUpstream

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from modelsup.worker.contract import LaunchSpec

    from ..domain import Exit
    from .guard import Guard, Guards
    from .shared_limit import SharedLimit

logger = logging.getLogger(__name__)

TRIES: Final = 2  # a forkserver that ends under a spawn is replaced once


class LocalLauncher:
    """Launcher of this machine. `run_dir` holds one temporary folder per worker.

    `guards` hold workers to their limits of host memory, `shared_limit` tells of the one for all.
    """

    def __init__(
        self,
        run_dir: Path,
        logs: LogBook,
        guards: Guards,
        shared_limit: SharedLimit,
        forkserver_ttl: float = 0,
    ) -> None:
        self._run_dir = run_dir
        self._logs = logs
        self._guards = guards
        self._shared_limit = shared_limit
        self._forkserver_ttl = forkserver_ttl
        self._forkservers: dict[str, Forkserver] = {}
        self._handles: dict[str, LocalHandle] = {}
        self._starting: dict[str, Exit | None] = {}  # worker id → its end, if that came first
        self._idle_timers: dict[str, asyncio.TimerHandle] = {}  # by runtime

    def forkservers(self) -> list[Forkserver]:
        """Return the forkservers that live."""
        return list(self._forkservers.values())

    async def preload(self, runtime: str) -> None:
        """Start the forkserver of a runtime and wait for its import. Raises ForkserverError."""
        await self._forkserver(runtime).ready()

    async def spawn(
        self, spec: LaunchSpec, on_status: Callable[[StatusMessage], None]
    ) -> LocalHandle:
        """Start a worker. Raises ForkserverError; then nothing is left of it."""
        try:
            return await self._spawn(spec, on_status)
        except OSError as error:
            raise ForkserverError(f"no worker could be started: {error.strerror}") from error

    async def _spawn(
        self, spec: LaunchSpec, on_status: Callable[[StatusMessage], None]
    ) -> LocalHandle:
        pipes = WorkerPipes.open()
        temp_dir = self._run_dir / spec.uid
        self._starting[spec.uid] = None
        guard = self._guards.make(spec)
        try:
            temp_dir.mkdir(mode=0o700, parents=True)
            told = replace(spec, cgroup=guard.entrance if guard else None)
            forkserver, pid, pidfd = await self._fork(told, pipes)
        except BaseException:
            del self._starting[spec.uid]
            pipes.close()
            _close_unused(guard)
            shutil.rmtree(temp_dir, ignore_errors=True)
            raise
        pipes.close_theirs()
        handle = self._handles[spec.uid] = LocalHandle(
            pid,
            pidfd,
            lifeline=pipes.lifeline,
            readers=self._readers(spec, pipes, on_status),
            upstream=HttpUpstream(*pipes.address, spec.secret),
            temp_dir=temp_dir,
            parent=forkserver,
            guard=guard,
            shared_limit=self._shared_limit,
            on_disposed=lambda: self._on_disposed(spec),
        )
        if early := self._starting.pop(spec.uid):
            handle.on_report(early)
        return handle

    async def _fork(self, spec: LaunchSpec, pipes: WorkerPipes) -> tuple[Forkserver, int, int]:
        for _ in range(TRIES - 1):
            forkserver = self._forkserver(spec.runtime)
            try:
                return forkserver, *await forkserver.spawn(spec, pipes.theirs)
            except ForkserverGone as error:
                logger.warning("%s; starting another", error)
                self._kill_orphans(spec)  # it may have forked this worker without telling us
        forkserver = self._forkserver(spec.runtime)
        return forkserver, *await forkserver.spawn(spec, pipes.theirs)

    def _forkserver(self, runtime: str) -> Forkserver:
        running = self._forkservers.get(runtime)
        if running is None:
            name = f"forkserver {runtime}"
            running = self._forkservers[runtime] = Forkserver(
                runtime,
                lambda data: self._logs.append(name, name, data),
                self._on_exit,
                self._on_forkserver_end,
            )
            logger.info("forkserver started", extra={"runtime": runtime, "pid": running.pid})
        return running

    def _on_forkserver_end(self, ended: Forkserver) -> None:
        if self._forkservers.get(ended.runtime) is ended:
            del self._forkservers[ended.runtime]

    def _on_exit(self, uid: str, report: Exit) -> None:
        if handle := self._handles.get(uid):
            handle.on_report(report)
        elif uid in self._starting:
            self._starting[uid] = report

    def _readers(
        self, spec: LaunchSpec, pipes: WorkerPipes, on_status: Callable[[StatusMessage], None]
    ) -> tuple[PipeReader, PipeReader]:
        loop = asyncio.get_running_loop()
        lines = StatusLines(spec.uid, on_status)
        log = PipeReader(
            loop, pipes.log, lambda data: self._logs.append(spec.model, spec.uid, data), _nothing
        )
        return log, PipeReader(loop, pipes.status, lines.feed, _nothing)

    def _on_disposed(self, spec: LaunchSpec) -> None:
        del self._handles[spec.uid]
        self._logs.finish(spec.model, spec.uid)
        self._kill_orphans(spec)
        if self._forkserver_ttl:
            self._look_again(spec.runtime, self._forkserver_ttl)

    def _kill_orphans(self, spec: LaunchSpec) -> None:
        forkservers = {forkserver.pid for forkserver in self._forkservers.values()}
        for orphan in kill_orphans(forkservers | {h.pid for h in self._handles.values()}):
            logger.warning(
                "killed a process that a worker left behind",
                extra={"worker": spec.uid, "pid": orphan.pid, "command": orphan.cmdline},
            )

    def _look_again(self, runtime: str, seconds: float) -> None:
        """Look after so long whether the forkserver is idle; one look is due at a time."""
        if timer := self._idle_timers.pop(runtime, None):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._idle_timers[runtime] = loop.call_later(seconds, self._end_if_idle, runtime)

    def _end_if_idle(self, runtime: str) -> None:
        """End a forkserver that no worker has needed for its time, or look again later.

        A timer may come a moment early, and a worker's end be known here before the forkserver
        tells of it: then its time is not up yet.
        """
        forkserver = self._forkservers.get(runtime)
        if forkserver is None:
            return
        left = self._forkserver_ttl - forkserver.idle_for()
        if left > 0:
            self._look_again(runtime, left)
            return
        logger.info("ending an idle forkserver", extra={"runtime": runtime})
        forkserver.close()

    def close(self) -> None:
        """End all forkservers."""
        for timer in self._idle_timers.values():
            timer.cancel()
        for forkserver in self.forkservers():
            forkserver.close()


class StatusLines:
    """Turns the bytes of a status pipe into messages of one worker."""

    def __init__(self, uid: str, on_status: Callable[[StatusMessage], None]) -> None:
        self._uid = uid
        self._on_status = on_status
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take bytes as they come; pass on each whole message, skip what is none."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            try:
                message = StatusMessage.from_line(line)
            except (TypeError, KeyError, ValueError):
                logger.warning("a worker sent a broken status line", extra={"worker": self._uid})
                continue
            if message.uid == self._uid:
                self._on_status(message)


def _nothing() -> None:
    """Ignore the end of a pipe: the worker's end is known from its process."""


def _close_unused(guard: Guard | None) -> None:
    if guard is not None:
        guard.kill()  # a fork that nobody waits for any more may be in it
        guard.close()
