"""What a model's files hold, as one digest: the same for a copy, another after any change.

Reading a large model takes a while. So each file's digest is remembered with the file's size, times
and inode, and a file for which these are the same is not read again.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .sources import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CHUNK: Final = 1024**2  # bytes, of one read
TRIES: Final = 3  # to read files that change meanwhile
MOST_FILES: Final = 4096  # that are remembered; the oldest go first
SETTLED: Final = 2 * 10**9  # ns; the clocks of file systems tick no slower than this


@dataclass(frozen=True, slots=True)
class KnownFile:
    """One file, as it was when it was read."""

    path: str
    state: str  # size, time of change of the content and of the inode in ns, and inode
    sha256: str  # hexadecimal


@dataclass(frozen=True, slots=True)
class _File:
    path: str
    size: int
    state: str
    changed: int  # ns since 1970


_Files = dict[str, _File]  # by path within the model, in the order of the names


class Digests:
    """Digests of models; may be asked from several threads at a time."""

    def __init__(
        self,
        known: Iterable[KnownFile],
        remember: Callable[[list[KnownFile]], object],
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        """`known` is what was remembered before; `remember` is told what to keep besides."""
        self._known = {file.path: file for file in known}
        self._remember = remember
        self._now = now  # ns since 1970
        self._lock = threading.Lock()

    def measure(self, path: Path) -> tuple[int, str]:
        """Return (bytes, digest) of a model file, or of all files below a folder.

        The digest is the SHA-256 of the names within the folder and of the contents; a single
        file's own name does not count. Takes as long as the disk needs for what is not known.
        Raises SourceError for files that cannot be read, or do not stop changing.
        """
        try:
            for _ in range(TRIES):
                files = _files_of(path)
                began = self._now()
                digests = self._digests_of(files)
                if _files_of(path) == files:
                    self._keep(files, digests, began)
                    return sum(file.size for file in files.values()), _joined(digests)
        except OSError as error:
            raise SourceError(f"{error.filename} cannot be read: {error.strerror}") from error
        raise SourceError(
            f"{path} changes while it is read; load it again once it has been written"
        )

    def _digests_of(self, files: _Files) -> dict[str, str]:
        digests = {}
        for name, file in files.items():
            known = self._known.get(file.path)
            if known is not None and known.state == file.state:
                digests[name] = known.sha256
            else:
                with suppress(FileNotFoundError):  # then the next look finds the files changed
                    digests[name] = _read(file.path)
        return digests

    def _keep(self, files: _Files, digests: dict[str, str], began: int) -> None:
        """Remember what was read, unless a later change might leave times and size the same."""
        read = [KnownFile(f.path, f.state, digests[name]) for name, f in files.items()]
        changed = {file.path: file.changed for file in files.values()}
        with self._lock:
            new = [
                file
                for file in read
                if self._known.get(file.path) != file and began - changed[file.path] > SETTLED
            ]
            self._known.update((file.path, file) for file in new)
            for path in list(self._known)[:-MOST_FILES]:
                del self._known[path]
        if new:
            self._remember(new)


def _files_of(path: Path) -> _Files:
    """Return the file, under the name "", or all files below the folder. Raises OSError."""
    if not path.is_dir():
        file = _file(str(path))
        return {"": file} if file else {}
    found = {os.path.relpath(each, path): _file(each) for each in sorted(_walk(str(path)))}
    return {name: file for name, file in found.items() if file is not None}


def _walk(folder: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, through links, but no folder twice."""
    seen: set[tuple[int, int]] = set()
    for parent, folders, files in os.walk(folder, followlinks=True, onerror=_raise):
        inside = os.stat(parent)  # noqa: PTH116 - a folder may hold many files
        if (inside.st_dev, inside.st_ino) in seen:
            folders.clear()
            continue
        seen.add((inside.st_dev, inside.st_ino))
        yield from (os.path.join(parent, name) for name in files)  # noqa: PTH118


def _raise(error: OSError) -> None:
    raise error


def _file(path: str) -> _File | None:
    """Return what tells a file from a changed one; None for what is no file, or not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a folder may hold many files
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    size, modified, changed = found.st_size, found.st_mtime_ns, found.st_ctime_ns
    state = f"{size} {modified} {changed} {found.st_ino}"
    return _File(path, size, state, max(modified, changed))


def _read(path: str) -> str:
    digest, buffer = hashlib.sha256(), memoryview(bytearray(CHUNK))
    with Path(path).open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            digest.update(buffer[:count])
    return digest.hexdigest()


def _joined(digests: dict[str, str]) -> str:
    """Return one digest of names and contents, in the order of the names."""
    whole = hashlib.sha256()
    for name in sorted(digests):
        whole.update(os.fsencode(name) + b"\0" + digests[name].encode() + b"\n")
    return whole.hexdigest()
