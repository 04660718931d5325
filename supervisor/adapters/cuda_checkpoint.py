"""A program: `cuda_checkpoint.py check`, `park PID` or `resume PID`. Standard library only.

It moves what a process has of its GPUs to host memory, and back in place, by the checkpoint calls
of CUDA's driver (cuCheckpointProcess*, driver 570 and later). It is a program of its own because a
call into a driver may hang, and initialising CUDA takes memory. It ends with 0, or with 1 and a
sentence on standard error. Source: the CUDA driver API, group CHECKPOINT.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any, Final

LIBRARY: Final = "libcuda.so.1"
OLDEST: Final = 12080  # of the driver's CUDA: 12.8, which came with driver 570
LOCK_MS: Final = 10_000  # until calls that are under way are given up on


class Refused(Exception):
    """The driver does not do it. The message says what and why."""


class _LockArgs(ctypes.Structure):
    _fields_ = (
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    )


class Driver:
    """CUDA's driver on this machine."""

    def __init__(self) -> None:
        """Open and initialise it. Raises Refused where it cannot checkpoint."""
        try:
            self._cuda: Any = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise Refused(f"there is no {LIBRARY} here") from error
        version = ctypes.c_int()
        self._call("cuDriverGetVersion", ctypes.byref(version))
        if version.value < OLDEST or not hasattr(self._cuda, "cuCheckpointProcessLock"):
            raise Refused("the driver is too old: it takes 570 or later")
        self._call("cuInit", 0)

    def park(self, pid: int) -> None:
        """Move what a process has of its GPUs to host memory. Raises Refused; it runs on then."""
        self._call("cuCheckpointProcessLock", pid, ctypes.byref(_LockArgs(LOCK_MS)))
        try:
            self._call("cuCheckpointProcessCheckpoint", pid, None)
        except Refused:
            self._call("cuCheckpointProcessUnlock", pid, None)
            raise

    def resume(self, pid: int) -> None:
        """Move it back, and let the process go on. Raises Refused; it stays parked then."""
        self._call("cuCheckpointProcessRestore", pid, None)
        self._call("cuCheckpointProcessUnlock", pid, None)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorName(code, ctypes.byref(text))
            told = text.value.decode() if text.value else "no name"
            raise Refused(f"{name} failed with {code} ({told})")


def main(arguments: list[str]) -> int:
    """Do what the arguments say; return the exit code."""
    try:
        driver = Driver()
        if arguments[0] == "park":
            driver.park(int(arguments[1]))
        elif arguments[0] == "resume":
            driver.resume(int(arguments[1]))
    except Refused as refusal:
        sys.stderr.write(f"{refusal}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
