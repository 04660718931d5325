"""What holds a worker to its limit of host memory: a cgroup where we may make one, else a watch."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from ..domain import Overuse
from .watcher import MemoryWatcher

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.worker.contract import LaunchSpec

    from .cgroup import Cgroups, WorkerGroup

logger = logging.getLogger(__name__)


class Guard(Protocol):
    """Holds one worker to its limit."""

    @property
    def kind(self) -> str:
        """What it is: "cgroup v1", "cgroup v2" or "watcher"."""
        ...

    @property
    def entrance(self) -> str | None:
        """The file that the worker has to write itself into, if there is one."""
        ...

    def start(self, pid: int, kill: Callable[[], None]) -> None:
        """Begin with a process; `kill` is called where the kernel does not do it."""
        ...

    def overuse(self) -> Overuse | None:
        """Return how the worker went over its limit, once it has ended; None if it did not."""
        ...

    def kill(self) -> None:
        """SIGKILL all that the worker started, as far as it is known."""
        ...

    def close(self) -> None:
        """Leave nothing behind. The worker and all that it started have ended."""
        ...


class Guards:
    """Makes a guard for each worker that has a limit."""

    def __init__(self, cgroups: Cgroups | None) -> None:
        self._cgroups = cgroups
        self._watcher = MemoryWatcher()
        self._left: list[WorkerGroup] = []  # that still held a process when they should have gone

    def make(self, spec: LaunchSpec) -> Guard | None:
        """Return a guard for a worker that is about to start; None if it has no limit."""
        limit = spec.host_memory_limit
        if limit is None:
            return None
        if self._cgroups is not None:
            try:
                group = self._cgroups.create(spec.uid, limit)
            except OSError as error:
                facts = {"worker": spec.uid, "reason": str(error)}
                logger.warning("no cgroup could be made, so the worker is watched", extra=facts)
            else:
                return _GroupGuard(group, self._cgroups.kind, limit, self._remove)
        return _WatchGuard(self._watcher, limit)

    def _remove(self, group: WorkerGroup) -> None:
        """Remove a group, and those that could not be removed before."""
        self._left = [g for g in [*self._left, group] if not g.remove()]

    def sweep(self) -> None:
        """Remove what supervisors that are gone have left."""
        if self._cgroups is not None:
            self._cgroups.sweep()

    def close(self) -> None:
        """End all of it. No other process of ours runs any more."""
        self._watcher.close()
        if self._cgroups is not None:
            self._cgroups.close()


class _GroupGuard:
    def __init__(
        self, group: WorkerGroup, kind: str, limit: int, remove: Callable[[WorkerGroup], None]
    ) -> None:
        self.kind = kind
        self.entrance = str(group.entrance)
        self._group = group
        self._limit = limit
        self._remove = remove

    def start(self, pid: int, kill: Callable[[], None]) -> None:
        """Do nothing: the worker enters by itself, and the kernel kills it."""

    def overuse(self) -> Overuse | None:
        if not self._group.oom_killed():
            return None
        return Overuse(self._limit, self._group.peak() or self._limit)

    def kill(self) -> None:
        self._group.kill()

    def close(self) -> None:
        self._remove(self._group)


class _WatchGuard:
    kind = "watcher"
    entrance = None

    def __init__(self, watcher: MemoryWatcher, limit: int) -> None:
        self._watcher = watcher
        self._limit = limit
        self._pid: int | None = None
        self._overuse: Overuse | None = None

    def start(self, pid: int, kill: Callable[[], None]) -> None:
        def on_over(_: int, private: int) -> None:
            self._overuse = Overuse(self._limit, private)
            kill()

        self._pid = pid
        self._watcher.watch(pid, self._limit, on_over)

    def overuse(self) -> Overuse | None:
        return self._overuse

    def kill(self) -> None:
        """Do nothing: what left the worker's process group is not known."""

    def close(self) -> None:
        if self._pid is not None:
            self._watcher.unwatch(self._pid)
