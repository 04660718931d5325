"""Facts about this machine and its processes, and the power to collect them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

from ..domain import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

PROC: Final = Path("/proc")
PR_SET_CHILD_SUBREAPER: Final = 36
COLLECT_TIMEOUT: Final = 1.0  # seconds for all orphans together; a killed one takes milliseconds

_TICKS: Final = os.sysconf("SC_CLK_TCK")  # per second, of the times in /proc
_DEAD: Final = frozenset("ZXx")
_CHILDREN_LISTED: Final = (PROC / "thread-self/children").exists()


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process that lost its parent, fell to us and was killed."""

    pid: int
    cmdline: tuple[str, ...]  # empty if it was dead already


def machine_memory() -> tuple[int, int]:
    """Return the machine's (total, available) memory in bytes."""
    memory = psutil.virtual_memory()
    return memory.total, memory.available


def memory_limit() -> int:
    """Return how many bytes we may use: the smaller of our cgroup's limit and the machine."""
    total, _ = machine_memory()
    try:
        membership = (PROC / "self/cgroup").read_text()
        mounts = (PROC / "self/mountinfo").read_text()
    except OSError:
        return total
    return min([total, *cgroup_limits(membership, mounts)])


def cgroup_limits(membership: str, mounts: str) -> list[int]:
    """Return the memory limits, in bytes, of a process's cgroup and of those above it.

    `membership` is the text of /proc/PID/cgroup, `mounts` that of /proc/PID/mountinfo.
    """
    return [
        int(text)
        for folder, name in cgroup_folders(membership, mounts)
        if (text := _read(folder / name).strip()).isdecimal()  # not "max"
    ]


def cgroup_folders(membership: str, mounts: str) -> Iterator[tuple[Path, str]]:
    """Yield the folders of a process's memory cgroup and of those above it, the own one first.

    With each comes the name of the file that holds its limit, which tells the version. The
    arguments are those of `cgroup_limits`.
    """
    paths: dict[str, str] = {}  # by controller; version 2 has "" for one
    for line in membership.splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        root, mount_point = left.split()[3:5]
        kind, _, options = right.split()[:3]
        if kind == "cgroup2":
            controller, name = "", "memory.max"
        elif kind == "cgroup" and "memory" in options.split(","):
            controller, name = "memory", "memory.limit_in_bytes"
        else:
            continue
        if controller in paths:
            folders = _upwards(Path(mount_point), root, paths[controller])
            yield from ((folder, name) for folder in folders)


def _upwards(mount_point: Path, root: str, path: str) -> Iterator[Path]:
    """Yield the folder of a cgroup and its parents, down to the mount point.

    A container may see only a part of the tree: `root` is what is mounted. A path outside of it
    is one that the container cannot see; then the mount point is the nearest known.
    """
    inside = Path(path).relative_to(root) if Path(path).is_relative_to(root) else Path()
    folder = mount_point / inside
    yield folder
    while folder != mount_point:
        folder = folder.parent
        yield folder


def process_memory(pid: int) -> Memory | None:
    """Return a process's host memory; None if it is gone, a zombie, or not ours to look at."""
    sizes: dict[str, int] = {}
    for line in _read(PROC / str(pid) / "smaps_rollup").splitlines()[1:]:
        name, kilobytes = line.split()[:2]
        sizes[name.rstrip(":")] = int(kilobytes) * 1024
    if not sizes:
        return None
    private = ("Private_Clean", "Private_Dirty", "Private_Hugetlb")
    uss = sum(sizes.get(name, 0) for name in private)
    return Memory(sizes["Pss"], uss, sizes["Rss"], sizes.get("Locked", 0))


def tree_memory(pid: int) -> Memory | None:
    """Return the memory of a process and all its descendants; None if it is gone itself.

    `rss` counts pages that they share once for each of them; `pss` does not.
    """
    own = process_memory(pid)
    if own is None:
        return None
    found = [own, *(m for child in descendants_of(pid) if (m := process_memory(child)))]
    return Memory(sum(m.pss for m in found), sum(m.uss for m in found), sum(m.rss for m in found))


def create_time(pid: int) -> float | None:
    """Return when a process started, in seconds from boot; None if it is gone.

    Not the time of day, for that moves when the clock is set, and a process would then look
    like another one of the same pid.
    """
    stat = _stat(pid)
    return None if stat is None else stat.created


def is_alive(pid: int, created: float) -> bool:
    """Tell whether the process of this pid and `create_time` still runs. A zombie does not."""
    stat = _stat(pid)
    return stat is not None and stat.state not in _DEAD and stat.created == created


def children_of(pid: int) -> list[int]:
    """Return the pids of a process's children, zombies included; none if it is gone."""
    return _children_lookup()(pid)


def descendants_of(pid: int) -> list[int]:
    """Return the pids of children, their children, and so on."""
    children = _children_lookup()
    found: list[int] = []
    waiting = children(pid)
    while waiting:
        child = waiting.pop()
        if child not in found:  # a pid may be used anew while we look
            found.append(child)
            waiting += children(child)
    return found


def _children_lookup() -> Callable[[int], list[int]]:
    """Return a function from pid to children; it may answer from a snapshot of this moment.

    A kernel built without CONFIG_PROC_CHILDREN does not list them: then we look at everyone's
    parent, once.
    """
    if _CHILDREN_LISTED:
        return _listed_children
    by_parent: dict[int, list[int]] = {}
    try:
        entries = list(os.scandir(PROC))
    except OSError:  # too many open files: seen at the next look
        entries = []
    for entry in entries:
        if entry.name.isdecimal() and (stat := _stat(int(entry.name))):
            by_parent.setdefault(stat.parent, []).append(int(entry.name))
    return lambda pid: by_parent.get(pid, [])[:]


def _listed_children(pid: int) -> list[int]:
    try:
        threads = list((PROC / str(pid) / "task").iterdir())
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(thread / "children").split()]


def become_subreaper() -> None:
    """Have orphaned descendants fall to this process instead of init. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"cannot become a child subreaper: {os.strerror(number)}")


def collect(pid: int) -> int | None:
    """Collect a child's exit without waiting.

    Returns its wait status; None while it runs, and for a process that is not our child or was
    collected before. Raises ValueError unless `pid` is one specific process.
    """
    if pid <= 0:
        raise ValueError(f"expected the pid of one process, got {pid}")
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if ended else None


def kill_orphans(known: Collection[int], timeout: float = COLLECT_TIMEOUT) -> list[Orphan]:
    """Kill and collect our children that are not in `known`, and what they leave behind.

    Returns those that were collected, within `timeout` seconds. One that does not die in time
    is found again by the next call.
    """
    deadline = time.monotonic() + timeout
    collected: list[Orphan] = []
    while orphans := [_kill(pid) for pid in children_of(os.getpid()) if pid not in known]:
        collected += [orphan for orphan in orphans if _collect_by(deadline, orphan.pid)]
        if time.monotonic() >= deadline:
            break
    return collected


def _kill(pid: int) -> Orphan:
    """Kill one child. Nobody else can have its pid, for only we can collect it."""
    command: tuple[str, ...] = ()
    with suppress(psutil.Error):
        command = tuple(psutil.Process(pid).cmdline())
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return Orphan(pid, command)


def _collect_by(deadline: float, pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:  # gone, or too many open files
        return False
    try:
        rest = max(deadline - time.monotonic(), 0)
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(rest * 1000)) and collect(pid) is not None
    finally:
        os.close(descriptor)


class _Stat(NamedTuple):
    state: str  # a letter
    parent: int
    created: float  # seconds from boot


def _stat(pid: int) -> _Stat | None:
    text = _read(PROC / str(pid) / "stat")
    if not text:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return _Stat(fields[0], int(fields[1]), int(fields[19]) / _TICKS)


def _read(path: Path) -> str:
    """Return a file's text; nothing where the process is gone or is not ours to look at."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
