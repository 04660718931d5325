"""What a worker finds out about its own memory, in real forks of this process."""

from __future__ import annotations

import gc
import json
import mmap
import os
import time
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.worker import footprint
from modelsup.worker.footprint import Meter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MB = 1024 * 1024
SLACK = 8 * MB  # what Python itself and a copied heap take


def in_a_fork(work: Callable[[], Any]) -> Any:
    """Return what `work` returns, through JSON, in a fork of this process."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            gc.disable()  # a collection would write to all of this process's heap
            os.write(writer, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text)


def test_each_stage_is_told_and_the_peak_between_them() -> None:
    def work() -> dict[str, int]:
        meter = Meter()
        kept = [bytearray(b"x") * (60 * MB)]
        passing = bytearray(b"x") * (100 * MB)
        del passing
        meter.mark("load")
        kept.append(bytearray(b"x") * (30 * MB))
        meter.mark("first_call")
        del kept[0]
        return meter.footprint()

    found = in_a_fork(work)
    base = found["fork"]
    assert list(found) == ["fork", "load", "first_call", "steady", "peak"]
    assert base >= 0  # pages of this process's own heap that the fork wrote to
    assert found["load"] - base == pytest.approx(60 * MB, abs=SLACK)
    assert found["first_call"] - base == pytest.approx(90 * MB, abs=SLACK)
    assert found["steady"] - base == pytest.approx(30 * MB, abs=SLACK)
    assert found["peak"] - base == pytest.approx(160 * MB, abs=SLACK)


def test_a_peak_is_counted_in_its_own_stage_only() -> None:
    """100 MB that passed before 60 MB were kept make no peak of 160 MB."""

    def work() -> dict[str, int]:
        meter = Meter()
        passing = bytearray(b"x") * (100 * MB)
        del passing
        meter.mark("load")
        kept = bytearray(b"x") * (60 * MB)
        meter.mark("first_call")
        return {"kept": len(kept), **meter.footprint()}

    found = in_a_fork(work)
    assert found["peak"] - found["fork"] == pytest.approx(100 * MB, abs=SLACK)


def test_what_the_fork_shares_costs_nothing_until_it_is_written_to() -> None:
    inherited = bytearray(b"x") * (80 * MB)

    def read() -> dict[str, int]:
        meter = Meter()
        assert sum(inherited[::4096]) > 0
        return meter.footprint()

    def write() -> dict[str, int]:
        meter = Meter()
        for at in range(0, 40 * MB, 4096):
            inherited[at] = 0
        return meter.footprint()

    assert in_a_fork(read)["steady"] < SLACK
    assert in_a_fork(write)["steady"] == pytest.approx(40 * MB, abs=SLACK)
    assert len(inherited) == 80 * MB


def test_mapped_files_are_no_peak(tmp_path: Path) -> None:
    """Resident size grows with a library that others map too; the peak must not."""
    path = tmp_path / "library"
    path.write_bytes(b"x" * (50 * MB))

    def work() -> dict[str, int]:
        meter = Meter()
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        assert sum(mapped[::4096]) > 0
        found = meter.footprint()
        assert len(mapped) == 50 * MB
        return found

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as ours:
        assert sum(ours[::4096]) > 0
        assert in_a_fork(work)["peak"] < SLACK


def test_a_mark_is_cheap() -> None:
    def work() -> float:
        meter = Meter()
        costs = []
        for _ in range(20):
            started = time.perf_counter()
            meter.mark("load")
            costs.append(time.perf_counter() - started)
        return min(costs)

    assert in_a_fork(work) < 0.002


def test_a_kernel_that_tells_nothing_gives_no_footprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footprint, "PROC_SELF", tmp_path / "none")
    meter = Meter()
    meter.mark("load")
    assert meter.footprint() == {}


def test_a_kernel_without_clear_refs_still_gives_a_peak(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "status").symlink_to("/proc/self/status")
    (tmp_path / "smaps_rollup").symlink_to("/proc/self/smaps_rollup")
    (tmp_path / "clear_refs").mkdir()  # writing to it fails
    monkeypatch.setattr(footprint, "PROC_SELF", tmp_path)

    def work() -> dict[str, int]:
        meter = Meter()
        passing = bytearray(b"x") * (100 * MB)
        del passing
        meter.mark("load")
        return meter.footprint()

    found = in_a_fork(work)
    assert found["load"] < SLACK
    assert found["peak"] - found["fork"] == pytest.approx(100 * MB, abs=SLACK)
