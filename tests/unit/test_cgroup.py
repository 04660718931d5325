"""Cgroups: real ones where this machine lets us make some, version 2's files on a made-up tree."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from modelsup.supervisor.adapters import cgroup
from modelsup.supervisor.adapters.cgroup import (
    Cgroups,
    CgroupUnusable,
    find_cgroups,
    open_cgroups,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Start = Callable[[str], subprocess.Popen[str]]

MB = 1024 * 1024

# Takes 10 MB more each time it reads a line; says so.
EATER = """
import sys
kept = []
print("started", flush=True)
for line in sys.stdin:
    kept.append(bytearray(b"x") * (10 << 20))
    print(len(kept), flush=True)
"""

# Says its child's pid, which is in a session of its own and waits for ever.
PARENT = """
import os, signal
child = os.fork()
if child == 0:
    os.setsid()
    signal.pause()
print(child, flush=True)
signal.pause()
"""


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    """The groups of this process, in which none must be left after the test."""
    found = find_cgroups()
    if found is None:
        pytest.skip("no memory cgroup is ours to change")
    yield found
    found.close()
    assert not found.base.exists()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start Python programs that talk line by line, and collect them after the test."""
    started: list[subprocess.Popen[str]] = []

    def _start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.communicate()


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def eat(process: subprocess.Popen[str], times: int) -> str:
    """Have an eater take 10 MB so many times; return its last word, "" if it was killed."""
    assert process.stdin is not None
    said = ""
    for _ in range(times):
        process.stdin.write("\n")
        said = read_line(process)
        if not said:
            break
    return said


def test_a_process_past_its_limit_is_killed_and_the_group_says_why(
    cgroups: Cgroups, start: Start
) -> None:
    group = cgroups.create("eater", 50 * MB)
    process = start(EATER)
    assert read_line(process) == "started"
    group.add(process.pid)
    assert eat(process, 2) == "2"
    used, peak = group.usage(), group.peak()
    assert used is not None
    assert 20 * MB <= used <= 50 * MB
    assert peak is None or peak >= used
    assert not group.oom_killed()
    assert not group.remove()  # a process is in it
    assert eat(process, 10) == ""
    assert process.wait() == -signal.SIGKILL
    assert group.oom_killed()
    assert group.remove()
    assert group.usage() is None
    assert group.remove()


def test_children_in_sessions_of_their_own_are_killed_with_the_group(
    cgroups: Cgroups, start: Start
) -> None:
    group = cgroups.create("family", 100 * MB)
    process = start("input()\n" + PARENT)
    group.add(process.pid)
    assert process.stdin is not None
    process.stdin.write("\n")
    child = int(read_line(process))
    assert sorted(group.pids()) == sorted([process.pid, child])
    child_end = os.pidfd_open(child)
    group.kill()
    assert process.wait() == -signal.SIGKILL
    assert_ended(child_end)
    assert not group.oom_killed()
    assert group.remove()


def assert_ended(pidfd: int) -> None:
    """Wait for the end of a process through its pidfd, and close that."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert poll.poll(10_000)
    os.close(pidfd)


def test_a_process_that_is_gone_cannot_be_added(cgroups: Cgroups, start: Start) -> None:
    process = start("")
    process.wait()
    group = cgroups.create("late", 50 * MB)
    with pytest.raises(OSError, match="No such process"):
        group.add(process.pid)
    assert group.remove()


def test_groups_of_a_dead_supervisor_are_swept_with_what_runs_in_them(
    cgroups: Cgroups, start: Start
) -> None:
    gone = start("")
    gone.wait()
    left = cgroups.own / f"modelsup-{gone.pid}"
    (left / "worker").mkdir(parents=True)
    process = start(EATER)
    (left / "worker/cgroup.procs").write_text(str(process.pid))
    ours = cgroups.create("ours", 50 * MB)
    cgroups.sweep()
    assert process.wait() == -signal.SIGKILL
    cgroups.sweep()  # the first may have come before the end of the process
    assert not left.exists()
    assert ours.folder.exists()
    assert ours.remove()


def test_groups_of_another_live_supervisor_are_left_alone(cgroups: Cgroups, start: Start) -> None:
    other = start("input()")
    folder = cgroups.own / f"modelsup-{other.pid}"
    folder.mkdir()
    try:
        cgroups.sweep()
        assert folder.exists()
    finally:
        folder.rmdir()


def mounted(folder: Path) -> str:
    return f"31 23 0:28 / {folder} rw,relatime - cgroup2 cgroup2 rw\n"


def make_v2(folder: Path, **files: str) -> Path:
    """Make a group of version 2 as the kernel shows it, of files that stay what is written."""
    folder.mkdir(parents=True, exist_ok=True)
    shown = {"controllers": "cpu memory pids", "subtree_control": "", "procs": "", "type": "domain"}
    for name, text in (shown | files).items():
        (folder / f"cgroup.{name}").write_text(text + "\n")
    return folder


def test_version_2_gives_its_own_group_a_leaf_and_limits_workers(tmp_path: Path) -> None:
    unit = make_v2(tmp_path / "unit", procs=str(os.getpid()))
    found = open_cgroups("0::/unit\n", mounted(tmp_path))
    assert found.kind == "cgroup v2"
    base = unit / f"modelsup-{os.getpid()}"
    assert (base / "supervisor/cgroup.procs").read_text() == str(os.getpid())
    assert (unit / "cgroup.subtree_control").read_text() == "+memory"
    assert (base / "cgroup.subtree_control").read_text() == "+memory"
    group = found.create("w1", 300 * MB)
    assert group.folder == base / "w1"
    assert (group.folder / "memory.max").read_text() == str(300 * MB)
    group.add(4321)
    assert (group.folder / "cgroup.procs").read_text() == "4321"


def test_version_2_forbids_swap_and_kills_the_whole_group(tmp_path: Path) -> None:
    """The kernel makes these files with the folder; here they are there before."""
    make_v2(tmp_path, procs=str(os.getpid()))
    found = open_cgroups("0::/\n", mounted(tmp_path))
    folder = tmp_path / "filled"
    folder.mkdir()
    for name in ("memory.swap.max", "memory.oom.group"):
        (folder / name).touch()
    found._set_limit(folder, MB)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1"


def test_version_2_figures_and_events(tmp_path: Path) -> None:
    make_v2(tmp_path, procs=str(os.getpid()))
    group = open_cgroups("0::/\n", mounted(tmp_path)).create("w1", MB)
    assert group.usage() is None
    assert not group.oom_killed()
    (group.folder / "memory.current").write_text("4096\n")
    (group.folder / "memory.peak").write_text("8192\n")
    (group.folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 1\noom_kill 0\n")
    assert (group.usage(), group.peak()) == (4096, 8192)
    assert not group.oom_killed()
    (group.folder / "memory.events").write_text("max 7\noom 1\noom_kill 1\noom_group_kill 1\n")
    assert group.oom_killed()


def test_version_2_kills_through_its_own_file(tmp_path: Path) -> None:
    make_v2(tmp_path, procs=str(os.getpid()))
    group = open_cgroups("0::/\n", mounted(tmp_path)).create("w1", MB)
    (group.folder / "cgroup.kill").touch()
    group.kill()
    assert (group.folder / "cgroup.kill").read_text() == "1"


def test_the_root_of_the_tree_needs_no_leaf(tmp_path: Path) -> None:
    make_v2(tmp_path, subtree_control="memory", procs="1\n2")
    (tmp_path / "cgroup.type").unlink()
    found = open_cgroups("0::/\n", mounted(tmp_path))
    assert not (found.base / "supervisor").exists()
    assert (found.base / "cgroup.subtree_control").read_text() == "+memory"


def test_a_group_with_other_processes_is_refused_and_left_as_it_was(tmp_path: Path) -> None:
    make_v2(tmp_path, procs=f"0\n{os.getpid()}\n77")
    with pytest.raises(CgroupUnusable, match=r"holds other processes too \(0, 77\)"):
        open_cgroups("0::/\n", mounted(tmp_path))
    assert not (tmp_path / f"modelsup-{os.getpid()}").exists()
    assert (tmp_path / "cgroup.subtree_control").read_text() == "\n"


def test_a_group_without_the_controller_is_refused(tmp_path: Path) -> None:
    make_v2(tmp_path, controllers="cpu pids")
    with pytest.raises(CgroupUnusable, match="has no memory controller"):
        open_cgroups("0::/\n", mounted(tmp_path))


def test_a_tree_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    mounts = f"31 23 0:28 / {tmp_path}/none rw - cgroup cgroup rw,memory\n"
    with pytest.raises(CgroupUnusable, match="is not ours to change: No such file"):
        open_cgroups("4:memory:/\n", mounts)


def test_no_cgroup_at_all_is_refused() -> None:
    with pytest.raises(CgroupUnusable, match="no memory cgroup is mounted"):
        open_cgroups("", "21 1 8:1 / / rw - ext4 /dev/root rw\n")


def test_a_machine_without_proc_files_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cgroup, "PROC", tmp_path)
    with caplog.at_level("INFO"):
        assert find_cgroups() is None
    assert "No such file" in vars(caplog.records[-1])["reason"]


def test_processes_outside_our_pid_namespace_are_no_reason_to_kill_ourselves(
    tmp_path: Path, start: Start
) -> None:
    """Such a process is shown as 0, and kill(0) means the own process group."""
    process = start("input()")
    make_v2(tmp_path, procs=str(os.getpid()))
    group = open_cgroups("0::/\n", mounted(tmp_path)).create("w1", MB)
    (group.folder / "cgroup.procs").write_text(f"0\n{process.pid}\n")
    group.kill()
    assert process.wait() == -signal.SIGKILL
