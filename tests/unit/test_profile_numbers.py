"""What a profile computes from what was measured: sums, peaks, advice, the pool's answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.cli.commands.profile import counts
from modelsup.cli.profile.measure import gpu_of, most_of, row_of, source_of
from modelsup.cli.profile.pool import read_pool
from modelsup.cli.profile.recommend import HEADROOM, peak_of_all, recommend
from modelsup.cli.profile.results import Gpu, PoolRow, Row
from modelsup.client.views import Gpu as GpuView
from modelsup.client.views import GpuProcess, HostMemory, Memory, WorkerInfo, WorkerMemory

if TYPE_CHECKING:
    from pathlib import Path

MB = 10**6
GPU = Gpu("GPU-a", total_bytes=8000 * MB, budget_bytes=7600 * MB, used_bytes=1000 * MB)


def worker(uid: str, load: int, steady: int, peak: int, device: str | None = None) -> WorkerInfo:
    return WorkerInfo(
        id=uid,
        model="m",
        state="ready",
        device=device,
        memory=WorkerMemory(pss_bytes=steady + 7, uss_bytes=steady + 2, rss_bytes=steady + 900),
        memory_stages={
            "fork": 1, "load": load, "first_call": steady, "steady": steady, "peak": peak,
        },
    )  # fmt: skip


def test_a_row_adds_up_its_workers() -> None:
    row = row_of([worker("a", 10, 20, 50), worker("b", 11, 21, 51)])
    assert row == Row(
        instances=2,
        before_bytes=21,
        after_bytes=41,
        peak_bytes=71,  # the second at its peak, beside the first at rest
        private_bytes=45,
        proportional_bytes=55,
    )


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1))
def test_the_peak_of_all_is_between_the_largest_and_the_sum(sizes: list[tuple[int, int]]) -> None:
    steady = [low for low, _ in sizes]
    peaks = [low + more for low, more in sizes]
    assert max(peaks) <= peak_of_all(steady, peaks) <= sum(peaks)
    assert peak_of_all(steady, peaks) >= sum(steady)


def test_the_most_is_the_peak_or_what_it_has_while_it_serves() -> None:
    assert most_of(worker("a", 1, 20, 50)) == 50
    assert most_of(worker("a", 1, 20, 20)) == 22


def test_ram_is_the_most_with_headroom_in_whole_megabytes() -> None:
    advice = recommend(100 * MB + 1, 1000 * MB, None)
    assert advice.headroom == HEADROOM
    assert advice.ram_bytes == 126 * MB
    assert (advice.fits, advice.limited_by) == (7, "host")
    assert advice.gpu_memory_fraction is None
    assert "CPU" in str(advice.gpu_reason)


def test_nothing_fits_where_the_budget_is_spent() -> None:
    assert recommend(100 * MB, 0, None).fits == 0
    assert recommend(100 * MB, -5 * MB, None).fits == 0


def test_a_fraction_covers_what_the_worker_took_of_the_gpu() -> None:
    advice = recommend(100 * MB, 10**12, GPU)
    assert advice.gpu_memory_fraction == 0.16  # 1250 of 8000 MB, rounded up
    assert (advice.fits, advice.limited_by) == (4, "gpu")  # 7600 / (1280 + 450)
    assert recommend(100 * MB, 250 * MB, GPU).limited_by == "host"


def test_a_fraction_is_never_above_one() -> None:
    full = Gpu("GPU-a", total_bytes=100, budget_bytes=None, used_bytes=99)
    assert recommend(1, 100 * MB, full).gpu_memory_fraction == 1.0


def test_no_fraction_where_the_driver_tells_nothing() -> None:
    advice = recommend(1, 100 * MB, Gpu("GPU-a", 100, 95, None))
    assert advice.gpu_memory_fraction is None
    assert "GPU-a" in str(advice.gpu_reason)


@given(st.integers(1, 10**12), st.integers(0, 10**13))
def test_what_fits_stays_within_the_budget(most: int, budget: int) -> None:
    advice = recommend(most, budget, None)
    assert advice.ram_bytes >= most * (1 + HEADROOM)
    assert advice.fits * advice.ram_bytes <= budget < (advice.fits + 1) * advice.ram_bytes


def test_the_gpu_of_a_worker_with_what_it_takes_of_it() -> None:
    processes = (GpuProcess(1, 5, None), GpuProcess(2, 700, "a"))
    gpu = GpuView("GPU-a", "card", 0, 8000, 7600, processes=processes)
    memory = Memory(HostMemory(1, 1), gpus=(gpu,))
    assert gpu_of(worker("a", 1, 1, 1, "GPU-a"), memory) == Gpu("GPU-a", 8000, 7600, 700)
    assert gpu_of(worker("b", 1, 1, 1, "GPU-a"), memory) == Gpu("GPU-a", 8000, 7600, None)
    assert gpu_of(worker("a", 1, 1, 1), memory) is None


def test_a_source_with_versions_is_that_of_the_loaded_one(tmp_path: Path) -> None:
    (tmp_path / "3").mkdir()
    assert source_of(str(tmp_path), "3") == str(tmp_path / "3")
    assert source_of(str(tmp_path / "m.keras"), "1") == str(tmp_path / "m.keras")
    assert source_of(None, "1") is None


def test_the_answer_of_the_pool() -> None:
    good = {"instances": 1, "before_bytes": 2, "after_bytes": 3, "peak_bytes": 4}
    bad = {"instances": 2, "error": "the process was killed by signal 9"}
    text = f"noise\n{json.dumps({'framework_bytes': 9, 'rows': [good, bad]})}\n"
    pool = read_pool(0, text, "")
    assert pool.framework_bytes == 9
    assert pool.rows == (PoolRow(1, 2, 3, 4),)
    assert pool.reason == "2: the process was killed by signal 9"


def test_a_pool_that_failed_says_what_it_said_last() -> None:
    pool = read_pool(1, "", "Traceback\nLookupError: there is no runtime 'x'\n\n")
    assert pool.rows == ()
    assert pool.reason == "it ended with code 1: LookupError: there is no runtime 'x'"
    assert read_pool(-9, "", "").reason == "it ended with code -9: no message"


def test_counts_come_in_rising_order() -> None:
    assert counts("4, 1,2,2") == (1, 2, 4)


@pytest.mark.parametrize("text", ["", "0,1", "one", "1,,2", "-1"])
def test_counts_that_are_none(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"write 1,2,4"):
        counts(text)
