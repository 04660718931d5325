"""One supervisor per state folder, and what an earlier one left in it."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import signal
from typing import TYPE_CHECKING

from .host import is_alive

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from .store import WorkerRecord

logger = logging.getLogger(__name__)


class AlreadyRunning(Exception):
    """Another supervisor holds the state folder."""


class StateFolder:
    """The folder that a supervisor owns while it runs.

    The lock is the kernel's: it is gone with the process, however that ends.
    """

    def __init__(self, path: Path) -> None:
        """Take the folder. Raises AlreadyRunning, or OSError if it cannot be made or written."""
        self.path = path
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 32, 0).decode(errors="replace").strip()
            os.close(self._lock)
            raise AlreadyRunning(
                f"another supervisor (pid {holder or 'unknown'}) uses the state folder {path}; "
                "stop it, or choose another --state-dir"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    @property
    def database(self) -> Path:
        """Where state.db is."""
        return self.path / "state.db"

    @property
    def run(self) -> Path:
        """Where each worker has its temporary folder."""
        return self.path / "run"

    def sweep(self, workers: Iterable[WorkerRecord]) -> None:
        """Remove what an earlier supervisor left: workers that still live, and their folders."""
        for worker in workers:
            alive = worker.create_time is not None and is_alive(worker.pid, worker.create_time)
            facts = {"worker": worker.uid, "model": worker.model, "pid": worker.pid}
            if alive:
                logger.warning("killing a worker of an earlier supervisor", extra=facts)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(worker.pid, signal.SIGKILL)
            else:
                logger.info("an earlier supervisor left without unloading", extra=facts)
        shutil.rmtree(self.run, ignore_errors=True)
        self.run.mkdir(mode=0o700)

    def close(self) -> None:
        """Give the folder up."""
        shutil.rmtree(self.run, ignore_errors=True)
        os.close(self._lock)
