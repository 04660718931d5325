"""One forkserver process and the conversation with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from ..domain import Exit
from ..errors import LaunchFailed
from .logs import PipeReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.worker.contract import LaunchSpec

MAX_MESSAGE: Final = 64 * 1024  # bytes
QUICK_EXIT: Final = 5.0  # seconds between the end of its control socket and that of its process

# What a worker may see of the supervisor's environment: never its secrets.
PASSED_ON: Final = (
    "PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV",
    "CUDA_HOME", "XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS",
)  # fmt: skip
FIXED: Final = {
    # A BLAS that starts its threads at import would make forking unsafe.
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "PYTHONUNBUFFERED": "1",
    "MALLOC_ARENA_MAX": "4",
}


class ForkserverError(LaunchFailed):
    """A worker that could not be forked; the message says why."""


class ForkserverGone(ForkserverError):
    """The forkserver ended before it answered; another one may do better."""


def clean_environment() -> dict[str, str]:
    """Return the environment of a forkserver and so of its workers."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | FIXED


class RuntimeBroken(ForkserverError):
    """A runtime that cannot be imported."""

    cause = "load_error"


class Forkserver:
    """Starts workers of one runtime and hears of their ends."""

    def __init__(
        self,
        runtime: str,
        on_output: Callable[[bytes], None],
        on_exit: Callable[[str, Exit], None],
        on_end: Callable[[Forkserver], None],
    ) -> None:
        self.runtime = runtime
        self.alive = True
        self._on_exit = on_exit
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._spawns: dict[str, asyncio.Future[tuple[int, int]]] = {}
        self._sending = asyncio.Lock()
        self._writable = asyncio.Event()
        self._children: set[str] = set()
        self._last_end = self._loop.time()
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            self._control, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.callback(self._control.close)
            theirs.callback(control.close)
            self._control.setblocking(False)
            life_read, self._lifeline = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, self._lifeline)
            theirs.callback(os.close, life_read)
            output, output_write = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, output_write)
            self._output = PipeReader(self._loop, output, on_output, lambda: None)
            ours.callback(self._output.close)
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    sys.executable, "-m", "modelsup.worker.forkserver", "--runtime", runtime,
                    "--control", str(control.fileno()), "--lifeline", str(life_read),
                ],
                stdin=subprocess.DEVNULL, stdout=output_write, stderr=output_write,
                pass_fds=(control.fileno(), life_read), env=clean_environment(),
                start_new_session=True,
            )  # fmt: skip
            ours.pop_all()  # it runs: these are kept
        self.pid = self._process.pid
        self._loop.add_reader(self._control.fileno(), self._on_readable)

    @property
    def state(self) -> str:
        """Return "importing", "ready" or "ended"."""
        if not self.alive:
            return "ended"
        return "ready" if self._ready.done() else "importing"

    def idle_for(self) -> float:
        """Return the seconds since its last worker ended; 0 while it has one, or forks one."""
        busy = self._children or self._spawns or not self._ready.done()
        return 0.0 if busy else self._loop.time() - self._last_end

    async def ready(self) -> None:
        """Wait until the framework is imported. Raises ForkserverError."""
        await asyncio.shield(self._ready)

    async def spawn(self, spec: LaunchSpec, descriptors: tuple[int, ...]) -> tuple[int, int]:
        """Fork a worker; return its pid and a pidfd of it. Raises ForkserverError."""
        await self.ready()
        if not self.alive:
            raise ForkserverGone(f"the {self.runtime} forkserver ended")
        answer = self._spawns[spec.uid] = self._loop.create_future()
        request = json.dumps({"op": "spawn", "spec": json.loads(spec.to_json())}).encode()
        try:
            await self._send(request, descriptors)
        except OSError as error:
            self._spawns.pop(spec.uid, None)
            raise ForkserverGone(
                f"the {self.runtime} forkserver does not listen: {error.strerror}"
            ) from error
        except asyncio.CancelledError:
            self._spawns.pop(spec.uid, None)
            raise
        try:
            pid, pidfd = await answer
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                os.close(answer.result()[1])  # the two crossed; the lifeline ends the worker
            raise
        return pid, pidfd

    async def _send(self, request: bytes, descriptors: tuple[int, ...]) -> None:
        """Send once there is room: hundreds of loads at once fill the socket. Raises OSError."""
        async with self._sending:
            while True:
                try:
                    socket.send_fds(self._control, [request], descriptors)
                except BlockingIOError:
                    await self._until_writable()
                else:
                    return

    async def _until_writable(self) -> None:
        """Wait for room in the control socket, or for its end."""
        writable = self._writable = asyncio.Event()
        self._loop.add_writer(self._control.fileno(), writable.set)
        try:
            await writable.wait()
        finally:
            if self.alive:
                self._loop.remove_writer(self._control.fileno())

    def _on_readable(self) -> None:
        while self.alive:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE, 1)
            except BlockingIOError:
                return
            except OSError:
                data, descriptors = b"", []
            if not data:
                self._end()
                return
            self._on_event(json.loads(data), descriptors)

    def _on_event(self, message: dict[str, Any], descriptors: list[int]) -> None:
        match message["event"]:
            case "ready":
                self._ready.set_result(None)
            case "broken":
                self._fail_ready(RuntimeBroken(broken_text(self.runtime, message["message"])))
            case "spawned":
                self._answer_spawn(message["uid"], message["pid"], descriptors)
            case "refused":
                self._refuse(message["uid"], message["message"])
            case "exited":
                report = {k: message[k] for k in ("code", "signal", "max_rss", "cpu_seconds")}
                self._children.discard(message["uid"])
                self._last_end = self._loop.time()
                self._on_exit(message["uid"], Exit(**report))

    def _refuse(self, uid: str, message: str) -> None:
        answer = self._spawns.pop(uid)
        if not answer.done():
            answer.set_exception(ForkserverError(message))

    def _answer_spawn(self, uid: str, pid: int, descriptors: list[int]) -> None:
        self._children.add(uid)
        if not descriptors:  # the caller closes the lifeline, and so ends the worker
            self._refuse(uid, "no worker could be started: too many open files")
            return
        pidfd = descriptors[0]
        answer = self._spawns.pop(uid)
        if not answer.done():
            answer.set_result((pid, pidfd))
            return
        # Nobody waits any more: the caller closed the lifeline, and this makes it sure.
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)

    def _fail_ready(self, error: ForkserverError) -> None:
        if not self._ready.done():
            self._ready.set_exception(error)
            self._ready.exception()  # told to whoever waits; nobody may be waiting

    def _end(self) -> None:
        """Its control socket is closed: fail who waits, collect it, and tell the launcher."""
        self.alive = False
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._writable.set()
        self._control.close()
        os.close(self._lifeline)  # the kernel kills what is left of it
        gone = ForkserverGone(f"the {self.runtime} forkserver (pid {self.pid}) ended unexpectedly")
        self._fail_ready(gone)
        for waiting in self._spawns.values():
            if not waiting.done():
                waiting.set_exception(gone)
        self._spawns.clear()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(QUICK_EXIT)
        self._output.close()
        self._on_end(self)

    def close(self) -> None:
        """End it. Workers that are still alive go on, collected by the supervisor."""
        if self.alive:
            self._end()


def broken_text(runtime: str, message: str) -> str:
    """Say what keeps a runtime from starting, and what to do."""
    if message.startswith("ModuleNotFoundError"):
        return (
            f"runtime {runtime} is not installed ({message}): "
            f"pip install 'modelsup[{runtime}]' into the supervisor's environment"
        )
    return f"runtime {runtime} does not start: {message}"
