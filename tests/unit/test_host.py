"""Facts about the host, from real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest
from modelsup.supervisor.adapters import host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# Prints its pid, its child's and its grandchild's; all three wait for the end of their input.
FAMILY = """
import os
reader, writer = os.pipe()
child = os.fork()
if child == 0:
    grandchild = os.fork()
    if grandchild:
        os.write(writer, b"%d" % grandchild)
else:
    print(os.getpid(), child, os.read(reader, 20).decode(), flush=True)
os.read(0, 1)
os._exit(0)
"""


@pytest.fixture
def start() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start Python programs, and collect them after the test."""
    started: list[subprocess.Popen[str]] = []

    def _start(program: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield _start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def zombie() -> Iterator[int]:
    """A child that has exited with 3 and is not collected until after the test."""
    pid = os.fork()
    if pid == 0:
        os._exit(3)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    yield pid
    host.collect(pid)


def read_pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(word) for word in process.stdout.readline().split()]


def test_the_limit_is_no_more_than_the_machine() -> None:
    total, available = host.machine_memory()
    assert 0 < available < total
    assert 0 < host.memory_limit() <= total


def make_cgroup(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text + "\n")


def test_version_2_limits_of_a_cgroup_and_its_parents(tmp_path: Path) -> None:
    make_cgroup(tmp_path / "slice/unit", "memory.max", "max")
    make_cgroup(tmp_path / "slice", "memory.max", "4096000")
    mounts = f"31 23 0:28 / {tmp_path} rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
    assert host.cgroup_limits("0::/slice/unit\n", mounts) == [4096000]


def test_version_1_limits(tmp_path: Path) -> None:
    make_cgroup(tmp_path / "pod", "memory.limit_in_bytes", "8192000")
    make_cgroup(tmp_path, "memory.limit_in_bytes", "9223372036854771712")
    mounts = (
        f"30 23 0:27 / {tmp_path}/cpu rw - cgroup cgroup rw,cpu\n"
        f"31 23 0:28 / {tmp_path} rw - cgroup cgroup rw,memory\n"
    )
    membership = "5:cpu,cpuacct:/\n4:memory:/pod\n0::/\n"
    assert host.cgroup_limits(membership, mounts) == [8192000, 9223372036854771712]


def test_a_container_that_sees_only_its_part_of_the_tree(tmp_path: Path) -> None:
    make_cgroup(tmp_path, "memory.max", "1000")
    make_cgroup(tmp_path / "sub", "memory.max", "500")
    mounts = f"31 23 0:28 /docker/abc {tmp_path} ro - cgroup2 cgroup rw\n"
    assert host.cgroup_limits("0::/docker/abc/sub\n", mounts) == [500, 1000]
    assert host.cgroup_limits("0::/docker/abc\n", mounts) == [1000]
    assert host.cgroup_limits("0::/elsewhere\n", mounts) == [1000]


def test_no_cgroup_means_no_limit() -> None:
    assert host.cgroup_limits("", "") == []
    assert host.cgroup_limits("0::/\n", "21 1 8:1 / / rw - ext4 /dev/root rw\n") == []


def test_memory_of_this_process_agrees_with_psutil() -> None:
    memory = host.process_memory(os.getpid())
    assert memory is not None
    assert 0 < memory.uss <= memory.pss <= memory.rss
    assert memory.uss == pytest.approx(psutil.Process().memory_full_info().uss, rel=0.1)


def test_a_process_that_is_gone_has_nothing(
    start: Callable[[str], subprocess.Popen[str]],
) -> None:
    process = start("")
    process.wait()
    pid = process.pid
    assert host.process_memory(pid) is None
    assert host.tree_memory(pid) is None
    assert host.create_time(pid) is None
    assert host.children_of(pid) == []
    assert not host.is_alive(pid, 0.0)


def test_a_zombie_is_dead_but_still_a_child(zombie: int) -> None:
    created = host.create_time(zombie)
    assert created is not None
    assert not host.is_alive(zombie, created)
    assert host.process_memory(zombie) is None
    assert zombie in host.children_of(os.getpid())


def test_another_process_of_the_same_pid_is_not_the_one() -> None:
    created = host.create_time(os.getpid())
    assert created is not None
    assert host.is_alive(os.getpid(), created)
    assert not host.is_alive(os.getpid(), created - 1)


def test_the_start_counts_from_boot() -> None:
    created = host.create_time(os.getpid())
    assert created == pytest.approx(psutil.Process().create_time() - psutil.boot_time(), abs=2)


def test_a_name_with_spaces_and_brackets_is_no_trouble(
    tmp_path: Path, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    name = "/proc/self/comm"
    process = start(f"open({name!r}, 'w').write(') S 1 (x'); print(1, flush=True); input()")
    assert read_pids(process) == [1]
    created = host.create_time(process.pid)
    assert created is not None
    assert host.is_alive(process.pid, created)
    assert process.pid in host.children_of(os.getpid())


@pytest.mark.parametrize("listed", [True, False])
def test_a_family_is_found_and_measured(
    start: Callable[[str], subprocess.Popen[str]], listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if listed and not host._CHILDREN_LISTED:
        pytest.skip("this kernel does not list children")
    monkeypatch.setattr(host, "_CHILDREN_LISTED", listed)
    parent, child, grandchild = read_pids(start(FAMILY))
    assert host.children_of(parent) == [child]
    assert host.descendants_of(parent) == [child, grandchild]
    own, tree = host.process_memory(parent), host.tree_memory(parent)
    assert own is not None
    assert tree is not None
    assert tree.pss > own.pss
    assert tree.rss > own.rss * 2


def test_collect_tells_running_from_ended(
    start: Callable[[str], subprocess.Popen[str]], zombie: int
) -> None:
    process = start("input()")
    assert host.collect(process.pid) is None
    status = host.collect(zombie)
    assert status is not None
    assert os.waitstatus_to_exitcode(status) == 3
    assert host.collect(zombie) is None


@pytest.mark.parametrize("pid", [0, -1])
def test_collect_takes_one_specific_process(pid: int) -> None:
    with pytest.raises(ValueError, match="expected the pid of one process"):
        host.collect(pid)


def test_collect_of_a_process_that_is_not_ours() -> None:
    assert host.collect(os.getppid()) is None


SUBREAPER = f"""
import os, signal, subprocess, sys
from modelsup.supervisor.adapters import host

host.become_subreaper()
kept = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
worker = subprocess.Popen(
    [sys.executable, "-c", {FAMILY!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
)
_, child, grandchild = map(int, worker.stdout.readline().split())
worker.kill()
worker.wait()
orphans = {{orphan.pid: orphan for orphan in host.kill_orphans({{kept.pid}}, timeout=30.0)}}
assert orphans.keys() == {{child, grandchild}}, orphans
assert "-c" in orphans[child].cmdline, orphans
assert host.children_of(os.getpid()) == [kept.pid]
assert host.kill_orphans({{kept.pid}}) == []
assert kept.poll() is None
kept.kill()
kept.wait()
print("done")
"""


def test_orphans_are_killed_and_collected_and_others_left_alone(
    start: Callable[[str], subprocess.Popen[str]],
) -> None:
    """The grandchild falls to the subreaper only when the child dies: both must go."""
    output, _ = start(SUBREAPER).communicate(timeout=60)
    assert output == "done\n"


def test_an_orphan_that_is_dead_already_is_collected(zombie: int) -> None:
    others = set(host.children_of(os.getpid())) - {zombie}
    assert host.kill_orphans(others) == [host.Orphan(zombie, ())]
    assert zombie not in host.children_of(os.getpid())


def test_an_orphan_that_stopped_itself_is_killed(
    start: Callable[[str], subprocess.Popen[str]],
) -> None:
    others = set(host.children_of(os.getpid()))
    process = start("input()")
    process.send_signal(signal.SIGSTOP)
    assert [orphan.pid for orphan in host.kill_orphans(others)] == [process.pid]
