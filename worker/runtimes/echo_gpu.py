"""A pretended GPU for the echo runtime: lines of a text file stand for allocated memory.

The form of the lines is that of the fake NVML of the tests, which reads the same file:
"device UUID TOTAL RESERVED", "process PID UUID BYTES" and "other UUID BYTES". A process holds
nothing while there is a file FILE.PID.parked.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .base import LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable


class PretendedGpu:
    """One GPU as one process sees it: what is free there, and the process's cap."""

    def __init__(self, path: str, uuid: str, limit: int | None, context: int) -> None:
        """Open it, which takes `context` bytes beside the cap. Raises LoadFailed."""
        self._path = Path(path)
        self._uuid = uuid
        self._limit = limit  # bytes
        self._context = context  # bytes, as the next
        self._held = 0
        if context:
            self.allocate(0)

    def allocate(self, size: int) -> None:
        """Take `size` bytes more. Raises LoadFailed, cause "cuda_oom", over the cap or the GPU."""
        rewrite(self._path, lambda lines: self._with(lines, self._held + size))
        self._held += size

    def _with(self, lines: list[str], held: int) -> list[str]:
        if self._limit is not None and held > self._limit:
            raise LoadFailed(
                "cuda_oom",
                f"out of GPU memory: {held} bytes are over the cap of {self._limit}; "
                "load the model with a larger --gpu-memory",
            )
        mine = f"process {os.getpid()} {self._uuid} "
        others = [line for line in lines if not line.startswith(mine)]
        free = self._free(others)
        held += self._context
        if held > free:
            raise LoadFailed(
                "cuda_oom", f"out of GPU memory: {held} bytes are wanted, {free} are free"
            )
        return [*others, f"{mine}{held}"]

    def _free(self, lines: list[str]) -> int:
        free = 0
        for line in lines:
            match line.split():
                case ["device", self._uuid, total, reserved]:
                    free += int(total) - int(reserved)
                case ["mig", _, self._uuid, total, reserved]:
                    free += int(total) - int(reserved)
                case ["process", pid, self._uuid, size, *flags]:
                    parked = Path(f"{self._path}.{pid}.parked").exists()
                    if "leak" in flags or (Path(f"/proc/{pid}").exists() and not parked):
                        free -= int(size)
                case ["other", self._uuid, size]:
                    free -= int(size)
        return free


def rewrite(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Replace a file's lines: one writer at a time, and no reader sees half of it."""
    with Path(f"{path}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lines = change(path.read_text().splitlines())
        draft = Path(f"{path}.new")
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.replace(path)
