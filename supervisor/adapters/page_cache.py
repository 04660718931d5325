"""Hold files in the kernel's page cache, where every process that maps them finds them."""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_LIBC.munmap.argtypes = _LIBC.mlock.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_MAP_FAILED: Final = ctypes.c_void_p(-1).value


@dataclass(frozen=True, slots=True)
class _Map:
    """A locked file in our address space."""

    address: int
    size: int


class PageCache:
    """Holds the files of folders, locked where the system allows it, else only read ahead.

    Locked memory is bounded by RLIMIT_MEMLOCK for whoever lacks CAP_IPC_LOCK. Not for several
    threads at a time.
    """

    def __init__(self) -> None:
        self._held: dict[str, list[_Map]] = {}

    def hold(self, folder: str) -> bool:
        """Read the files of a folder in and keep them; return whether all are locked.

        Takes as long as the disk needs. Raises OSError for a folder or file that is not there.
        """
        self.release(folder)
        files = [path for path in sorted(Path(folder).iterdir()) if path.stat().st_size]
        maps = self._held.setdefault(folder, [])
        for path in files:
            found = _lock(path)
            if found is not None:
                maps.append(found)
            else:
                _advise(path, os.POSIX_FADV_WILLNEED)
        return len(maps) == len(files)

    def release(self, folder: str) -> None:
        """Let the kernel have the memory of a folder's files back when it needs it."""
        for each in self._held.pop(folder, ()):
            _LIBC.munmap(each.address, each.size)  # ends the lock, too

    def drop(self, folder: str) -> None:
        """Give the memory of a folder's files back now, as far as nobody else maps them."""
        self.release(folder)
        with suppress(OSError):
            for path in Path(folder).iterdir():
                _advise(path, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Release all."""
        for folder in list(self._held):
            self.release(folder)


def _lock(path: Path) -> _Map | None:
    """Map a file and lock it; None where that is not allowed.

    Not by Python's `mmap`, which tells no address of a map that may not be written, and a map
    that may be is copied by the lock.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        address = _LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == _MAP_FAILED:
        return None
    if _LIBC.mlock(address, size) == 0:
        return _Map(address, size)
    logger.debug("not locked: %s: %s", path, os.strerror(ctypes.get_errno()))
    _LIBC.munmap(address, size)
    return None


def _advise(path: Path, advice: int) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, advice)
    finally:
        os.close(file)
