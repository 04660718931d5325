"""What guards a worker: a cgroup if one can be made, else a watch, and nothing without a limit."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import TYPE_CHECKING

from modelsup.supervisor.adapters.cgroup import open_cgroups
from modelsup.supervisor.adapters.guard import Guards
from modelsup.worker.contract import LaunchSpec

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SPEC = LaunchSpec("w1", "m", "1", "echo", None, "secret", "/tmp/w1")
LIMITED = LaunchSpec("w1", "m", "1", "echo", None, "secret", "/tmp/w1", host_memory_limit=1000)


def test_no_limit_no_guard() -> None:
    assert Guards(None).make(SPEC) is None


def test_watch_kills_and_tells_what_was_used() -> None:
    async def story() -> None:
        guards = Guards(None)
        guard = guards.make(LIMITED)
        assert guard is not None
        assert (guard.kind, guard.entrance, guard.overuse()) == ("watcher", None, None)
        killed = asyncio.Event()
        guard.start(os.getpid(), killed.set)  # whatever it is, this test needs more
        await asyncio.wait_for(killed.wait(), 10)
        overuse = guard.overuse()
        assert overuse is not None
        assert overuse.limit == 1000 < overuse.used
        guard.close()
        guards.close()

    asyncio.run(story())


def test_worker_is_watched_when_its_cgroup_cannot_be_made(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """On a made-up tree of version 1."""
    mounts = f"31 23 0:28 / {tmp_path} rw - cgroup cgroup rw,memory"
    cgroups = open_cgroups("4:memory:/", mounts)
    cgroups.base.rmdir()  # taken away by somebody else
    with caplog.at_level(logging.WARNING):
        guard = Guards(cgroups).make(LIMITED)
    assert guard is not None
    assert guard.kind == "watcher"
    assert "no cgroup could be made, so the worker is watched" in caplog.text
