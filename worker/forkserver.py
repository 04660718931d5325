"""The process that has imported one framework and forks workers from there.

It has one thread, touches no device and runs no operation, so that a fork is safe; a child forked
after any of these would hang. It talks to the supervisor in JSON messages over a SOCK_SEQPACKET
pair:

    supervisor -> {"op": "spawn", "spec": {...}} + listener, log, lifeline, status descriptors
    forkserver -> {"event": "ready"} | {"event": "broken", "message"}       once, after the import
                  {"event": "spawned", "uid", "pid"} + the worker's pidfd
                  {"event": "refused", "uid", "message"}
                  {"event": "exited", "uid", "code", "signal", "max_rss", "cpu_seconds"}
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from . import bootstrap, lifeline
from .contract import LaunchSpec

if TYPE_CHECKING:
    from .runtimes.base import Runtime

MAX_MESSAGE: Final = 64 * 1024  # bytes
DESCRIPTORS: Final = 4


@dataclass(frozen=True, slots=True)
class _Child:
    uid: str
    pid: int
    pidfd: int


class Forkserver:
    """Forks workers on request and reports their ends."""

    def __init__(self, control: socket.socket, runtime: Runtime) -> None:
        self._control = control
        self._runtime = runtime
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}

    def run(self) -> None:
        """Serve until the supervisor closes the control socket."""
        self._selector.register(self._control, selectors.EVENT_READ)
        self._send({"event": "ready"})
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._control:
                    if not self._on_message():
                        return
                else:
                    self._on_exit(self._children.pop(key.fd))

    def _send(self, message: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        socket.send_fds(self._control, [json.dumps(message).encode()], descriptors)

    def _on_message(self) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, MAX_MESSAGE, DESCRIPTORS)
        if not data:
            return False
        spec = LaunchSpec.from_json(json.dumps(json.loads(data)["spec"]))
        try:
            if len(descriptors) == DESCRIPTORS:
                self._spawn(spec, bootstrap.Descriptors(*descriptors))
            else:
                self._refuse(spec, "descriptors were lost on the way: too many open files?")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return True

    def _spawn(self, spec: LaunchSpec, descriptors: bootstrap.Descriptors) -> None:
        if threads_of_this_process() != 1:
            self._refuse(spec, "the forkserver has more than one thread; a fork would not be safe")
            return
        try:
            pid = os.fork()
        except OSError as error:
            self._refuse(spec, f"fork failed: {error.strerror}")
            return
        if pid == 0:
            self._close_in_child()
            bootstrap.run_worker(spec, descriptors, self._runtime)
        try:
            child = _Child(spec.uid, pid, os.pidfd_open(pid))
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._refuse(spec, f"a worker could not be watched: {error.strerror}")
            return
        self._children[child.pidfd] = child
        self._selector.register(child.pidfd, selectors.EVENT_READ)
        self._send({"event": "spawned", "uid": spec.uid, "pid": pid}, (child.pidfd,))

    def _refuse(self, spec: LaunchSpec, message: str) -> None:
        self._send({"event": "refused", "uid": spec.uid, "message": message})

    def _close_in_child(self) -> None:
        self._selector.close()
        self._control.close()
        for child in self._children.values():
            os.close(child.pidfd)

    def _on_exit(self, child: _Child) -> None:
        self._selector.unregister(child.pidfd)
        os.close(child.pidfd)
        _, status, usage = os.wait4(child.pid, 0)
        killed = os.WIFSIGNALED(status)
        self._send(
            {
                "event": "exited",
                "uid": child.uid,
                "code": None if killed else os.WEXITSTATUS(status),
                "signal": os.WTERMSIG(status) if killed else None,
                "max_rss": usage.ru_maxrss * 1024,
                "cpu_seconds": usage.ru_utime + usage.ru_stime,
            }
        )


def threads_of_this_process() -> int:
    """Return the number of threads the kernel knows of, Python's or not."""
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - cheaper than building paths


def find_runtime(name: str) -> Runtime:
    """Return the runtime of this name. Raises LookupError with the names there are."""
    found = {e.name: e for e in entry_points(group="modelsup.runtimes")}
    if name not in found:
        raise LookupError(f"there is no runtime {name!r}; installed are {', '.join(sorted(found))}")
    runtime: Runtime = found[name].load()()
    return runtime


def prepare(name: str) -> Runtime:
    """Import the framework and settle the heap for forking."""
    gc.disable()
    runtime = find_runtime(name)
    runtime.preload()
    gc.collect()
    gc.freeze()
    return runtime


def main(arguments: list[str] | None = None) -> int:
    """Run a forkserver on inherited descriptors. Returns an exit code."""
    parser = argparse.ArgumentParser(prog="python -m modelsup.worker.forkserver")
    parser.add_argument("--runtime", required=True)
    parser.add_argument("--control", type=int, required=True, help="descriptor of the socket")
    parser.add_argument("--lifeline", type=int, required=True, help="descriptor of the pipe")
    options = parser.parse_args(arguments)
    lifeline.arm(options.lifeline)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Path("/proc/self/comm").write_text(f"fork:{options.runtime}"[:15])
    control = socket.socket(fileno=options.control)
    try:
        runtime = prepare(options.runtime)
    except Exception as error:
        message = {"event": "broken", "message": f"{type(error).__name__}: {error}"}
        control.send(json.dumps(message).encode())
        return 3
    Forkserver(control, runtime).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
