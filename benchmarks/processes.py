"""Child processes of a benchmark: start, wait until they serve, measure, end."""

from __future__ import annotations

import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
TERM_SECONDS = 10.0  # between SIGTERM and SIGKILL


class BenchmarkError(Exception):
    """A measurement that cannot be used. The message says which side and why."""


class Server:
    """A Python module run as a server that prints `{"url": ...}` once it serves."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self._module = module
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdout=subprocess.PIPE,
                stderr=output,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        self.pid = self._process.pid

    def wait_for_url(self, seconds: float = 120.0) -> str:
        """Return the URL the server printed. Raises BenchmarkError where none came in time."""
        assert self._process.stdout is not None
        deadline = time.monotonic() + seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise BenchmarkError(f"{self._module} did not serve within {seconds:.0f} s")
                chunk = os.read(self._process.stdout.fileno(), 4096)
                if not chunk:
                    raise BenchmarkError(f"{self._module} ended early:\n{self._last_lines()}")
                line += chunk
        return str(json.loads(line.splitlines()[0])["url"])

    def stop(self) -> float:
        """End the process and its group; return all its CPU seconds. Takes 10 s at most."""
        before = _ended_children_cpu()
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(TERM_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        return _ended_children_cpu() - before

    def _last_lines(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-15:])


def _ended_children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def cpu_seconds(pids: Sequence[int]) -> float:
    """Return the CPU seconds of these processes and all descendants, ended ones included."""
    total = 0.0
    for process in _trees(pids):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def own_cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of one process without its children."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def _trees(pids: Sequence[int]) -> list[psutil.Process]:
    processes = []
    for pid in pids:
        try:
            root = psutil.Process(pid)
            processes += [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return processes
