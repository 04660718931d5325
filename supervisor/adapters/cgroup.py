"""Hard caps on the host memory of workers: one memory cgroup per worker, where we may make one.

The kernel's documents say what the files mean: Documentation/admin-guide/cgroup-v2.rst and
Documentation/admin-guide/cgroup-v1/memory.rst. A group's figures hold the page cache of files
that its processes read first; the kernel drops that before it kills, so only memory of their own
can bring workers to their end.
"""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .host import PROC, cgroup_folders

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

PREFIX: Final = "modelsup-"
LEAF: Final = "supervisor"  # version 2: where this process itself goes
KILL_ROUNDS: Final = 10  # more than a group of processes that fork while we kill them needs


class CgroupUnusable(Exception):
    """There is no cgroup that we may make groups in; the message says why."""


@dataclass(frozen=True, slots=True)
class _Files:
    """The names of what both versions have."""

    kind: str
    usage: str
    peak: str
    events: str  # has a line "oom_kill N"


_V1: Final = _Files(
    "cgroup v1", "memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
)
_V2: Final = _Files("cgroup v2", "memory.current", "memory.peak", "memory.events")


class WorkerGroup:
    """The cgroup of one worker."""

    def __init__(self, folder: Path, files: _Files) -> None:
        self.folder = folder
        self._files = files

    def add(self, pid: int) -> None:
        """Put a process into the group; memory that it has stays charged where it was.

        Its later children are in it as well. Raises OSError when it is gone.
        """
        self.entrance.write_text(str(pid))

    @property
    def entrance(self) -> Path:
        """The file through which a process enters: it writes its pid, or 0 for itself."""
        return self.folder / "cgroup.procs"

    def pids(self) -> list[int]:
        """Return the live processes of the group; none once it is removed."""
        return _pids(self.folder)

    def usage(self) -> int | None:
        """Return the bytes charged now, page cache included; None once it is removed."""
        return _number(self.folder / self._files.usage)

    def peak(self) -> int | None:
        """Return the most that was charged, in bytes; None where the kernel does not count it."""
        return _number(self.folder / self._files.peak)

    def oom_killed(self) -> bool:
        """Tell whether the kernel killed one of its processes for want of memory."""
        return oom_kills(self.folder / self._files.events) > 0

    def kill(self) -> None:
        """SIGKILL every process of the group, those in sessions of their own too."""
        with suppress(OSError):
            if (self.folder / "cgroup.kill").exists():  # version 2, Linux 5.14
                (self.folder / "cgroup.kill").write_text("1")
                return
        for _ in range(KILL_ROUNDS):
            pids = self.pids()
            for pid in filter(None, pids):  # 0: not in our pid namespace; to kill it kills us
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not pids:
                return

    def remove(self) -> bool:
        """Remove the group; False if a process is still in it, True if there is none any more."""
        return _remove(self.folder)


def oom_kills(events: Path) -> int:
    """Return how many processes of a group the kernel has killed for want of memory.

    Whatever limit they met with counts: the group's, or one above it. 0 where it is not told.
    """
    for line in _read(events).splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0


class Cgroups:
    """Makes the groups of this supervisor, in `<own group>/modelsup-<pid>/<worker id>`."""

    def __init__(self, own: Path, files: _Files) -> None:
        self.own = own
        self.base = own / f"{PREFIX}{os.getpid()}"
        self._files = files

    @property
    def kind(self) -> str:
        """Which one it is: "cgroup v2" or "cgroup v1"."""
        return self._files.kind

    def create(self, uid: str, limit: int) -> WorkerGroup:
        """Make a group that may use `limit` bytes, and no swap. Raises OSError."""
        folder = self.base / uid
        folder.mkdir()
        try:
            self._set_limit(folder, limit)
        except OSError:
            _remove(folder)
            raise
        return WorkerGroup(folder, self._files)

    def _set_limit(self, folder: Path, limit: int) -> None:
        if self._files is _V2:
            (folder / "memory.max").write_text(str(limit))
            _write_if_there(folder / "memory.swap.max", "0")
            _write_if_there(folder / "memory.oom.group", "1")  # its helpers die with a worker
        else:
            (folder / "memory.limit_in_bytes").write_text(str(limit))
            _write_if_there(folder / "memory.memsw.limit_in_bytes", str(limit))  # memory and swap

    def sweep(self) -> None:
        """Remove the groups of supervisors that are gone, and kill what still runs in them."""
        for base in self.own.glob(f"{PREFIX}*"):
            pid = base.name.removeprefix(PREFIX)
            if base == self.base or not pid.isdecimal() or (PROC / pid).exists():
                continue
            for folder in _folders(base):
                group = WorkerGroup(folder, self._files)
                group.kill()
                group.remove()
            if not _remove(base):
                logger.warning("a left cgroup could not be removed", extra={"cgroup": str(base)})

    def close(self) -> None:
        """Remove what `find_cgroups` made. Groups of workers that still live stay."""
        for folder in _folders(self.base):
            _remove(folder)
        if self._files is _V2 and (self.base / LEAF).exists():
            _leave_leaf(self.own, self.base)
        _remove(self.base)


def find_cgroups() -> Cgroups | None:
    """Return the maker of groups for this process; None, and the reason in the log, if none.

    With version 2 this moves the process into a leaf of its group, for only a group without
    processes may limit its children. So it is called once, before any other process is started.
    """
    try:
        membership = (PROC / "self/cgroup").read_text()
        mounts = (PROC / "self/mountinfo").read_text()
        return open_cgroups(membership, mounts)
    except (CgroupUnusable, OSError) as error:
        logger.info("no cgroup caps the host memory of workers", extra={"reason": str(error)})
        return None


def open_cgroups(membership: str, mounts: str) -> Cgroups:
    """Return the maker of groups below the memory cgroup of this process.

    `membership` is the text of /proc/PID/cgroup, `mounts` that of /proc/PID/mountinfo. Raises
    CgroupUnusable or OSError; then all is as it was.
    """
    own: dict[str, Path] = {}  # by the name of the file that holds the limit
    for folder, name in cgroup_folders(membership, mounts):
        own.setdefault(name, folder)  # the first is our own, then come those above it
    if "memory.limit_in_bytes" in own:  # a controller is in one version or the other
        found = Cgroups(own["memory.limit_in_bytes"], _V1)
        _make(found.base)
    elif "memory.max" in own:
        found = Cgroups(own["memory.max"], _V2)
        _open_v2(found.own, found.base)
    else:
        raise CgroupUnusable("no memory cgroup is mounted")
    return found


def _open_v2(own: Path, base: Path) -> None:
    if "memory" not in _read(own / "cgroup.controllers").split():
        raise CgroupUnusable(f"{own} has no memory controller: it was not delegated to us")
    _make(base)
    try:
        if "memory" not in _read(own / "cgroup.subtree_control").split():
            if (own / "cgroup.type").exists():  # all but the root of the whole tree
                _enter_leaf(own, base)
            (own / "cgroup.subtree_control").write_text("+memory")
        (base / "cgroup.subtree_control").write_text("+memory")
    except (CgroupUnusable, OSError):
        _leave_leaf(own, base)
        _remove(base)
        raise


def _enter_leaf(own: Path, base: Path) -> None:
    others = [pid for pid in _pids(own) if pid != os.getpid()]
    if others:
        raise CgroupUnusable(
            f"{own} holds other processes too ({', '.join(map(str, others[:3]))}); start the "
            "supervisor as a service, or with systemd-run --scope -p Delegate=yes"
        )
    (base / LEAF).mkdir(exist_ok=True)
    (base / LEAF / "cgroup.procs").write_text(str(os.getpid()))


def _leave_leaf(own: Path, base: Path) -> None:
    """Go back from the leaf, if we are in it; only a group that limits no child may hold us."""
    if not (base / LEAF).exists():
        return
    with suppress(OSError):
        (base / "cgroup.subtree_control").write_text("-memory")
        (own / "cgroup.subtree_control").write_text("-memory")
        (own / "cgroup.procs").write_text(str(os.getpid()))
    _remove(base / LEAF)


def _make(base: Path) -> None:
    try:
        base.mkdir(exist_ok=True)  # one of the same pid may have been left
    except OSError as error:
        raise CgroupUnusable(f"{base.parent} is not ours to change: {error.strerror}") from error


def _remove(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _folders(base: Path) -> list[Path]:
    with suppress(OSError):
        return [entry for entry in base.iterdir() if entry.is_dir()]
    return []


def _pids(folder: Path) -> list[int]:
    return [int(pid) for pid in _read(folder / "cgroup.procs").split()]


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdecimal() else None


def _write_if_there(path: Path, text: str) -> None:
    """Write to a file that kernels without swap accounting, or old ones, lack."""
    if path.exists():
        path.write_text(text)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
