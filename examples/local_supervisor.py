"""A supervisor of one's own: started on a free port, ended with everything it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import requests

from .tree_memory import ProcessMemory, memory_by_pid

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_SECONDS = 90.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.05


class StartError(Exception):
    """The supervisor did not come up. The message ends with the last lines of its log."""


@dataclass(frozen=True)
class LocalSupervisor:
    """A running supervisor."""

    url: str
    pid: int

    def memory(self) -> dict[int, ProcessMemory]:
        """Return the memory of supervisor, forkservers and workers by process id.

        The kernel's figures, so that they do not depend on what the supervisor says of itself.
        """
        return memory_by_pid([self.pid])


def end_on_sigterm() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that what it started is ended too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


@contextmanager
def local_supervisor(*options: str) -> Iterator[LocalSupervisor]:
    """Run `modelsup start` with temporary folders for state and cache until the block ends.

    Enters when the supervisor and all preloaded forkservers are ready. Raises StartError.
    """
    with tempfile.TemporaryDirectory(prefix="modelsup-") as folder:
        port = _free_port()
        command = [sys.executable, "-m", "modelsup.cli", "start", "--port", str(port)]
        command += ["--grpc-port", "", "--state-dir", folder, "--cache-dir", f"{folder}/cache"]
        command += options
        log = Path(folder, "supervisor.log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=_environment()
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_ready(url, process, log)
            yield LocalSupervisor(url, process.pid)
        finally:
            _stop(process)


def _environment() -> dict[str, str]:
    """Return the environment without settings of another supervisor."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MODELSUP_")}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(f"modelsup start ended at once:\n{_last_lines(log)}")
        if _is_ready(url):
            return
        time.sleep(POLL_SECONDS)
    raise StartError(f"modelsup was not ready after {READY_SECONDS:.0f} s:\n{_last_lines(log)}")


def _is_ready(url: str) -> bool:
    try:
        if requests.get(f"{url}/readyz", timeout=5).status_code != 200:
            return False
        status: dict[str, Any] = requests.get(f"{url}/api/status", timeout=5).json()
    except requests.ConnectionError:
        return False
    return all(server["state"] == "ready" for server in status["forkservers"])


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the supervisor in order; the workers follow it even where it must be killed."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
