"""The comparison that says whether a dead worker's GPU memory is back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.adapters.nvml import GpuProcess, GpuState
from modelsup.supervisor.adapters.reclaim import Hold, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

TOTAL = 80 * 10**9
MB = 10**6
PID, OTHER, THIRD = 100, 200, 300


def gpu(used: int, processes: Mapping[int, int | None] | None) -> GpuState:
    """A GPU with these bytes in use, and these processes' bytes."""
    rows = None if processes is None else tuple(GpuProcess(p, m) for p, m in processes.items())
    return GpuState(TOTAL, 0, used, TOTAL - used, rows)


def hold(before: GpuState, *, foreign_pids: bool = False) -> Hold:
    return Hold("GPU-a", PID, before, foreign_pids)


sizes = st.integers(min_value=1 * MB, max_value=TOTAL // 4)


@given(own=sizes, other_before=sizes, other_now=sizes, rest=st.integers(0, TOTAL // 10))
def test_what_others_do_meanwhile_changes_no_verdict(
    own: int, other_before: int, other_now: int, rest: int
) -> None:
    held = hold(gpu(own + other_before + rest, {PID: own, OTHER: other_before}))
    back = judge(held, gpu(other_now + rest, {THIRD: other_now}))
    assert (back.verdict, back.freed) == ("back", own)
    leaked = judge(held, gpu(own + other_now + rest, {THIRD: other_now}))
    assert (leaked.verdict, leaked.freed) == ("held", 0)


def test_a_process_that_came_between_two_readings_makes_no_leak() -> None:
    """It was listed, but not yet in the use: the true reading that follows is no growth."""
    held = hold(gpu(1000 * MB, {PID: 1000 * MB, OTHER: 3000 * MB}))
    back = judge(held, gpu(3000 * MB, {OTHER: 3000 * MB}))
    assert (back.verdict, back.freed) == ("back", 1000 * MB)


@given(own=st.none() | sizes, expected=st.none() | sizes, used=sizes)
def test_a_dead_process_that_is_listed_holds_its_memory(
    own: int | None, expected: int | None, used: int
) -> None:
    held = hold(gpu(2 * TOTAL // 4, {PID: own}))
    assert judge(held, gpu(used, {PID: own}), expected).verdict == "held"


def test_the_expected_fall_of_a_gpu_that_lists_no_processes() -> None:
    held = hold(gpu(3000 * MB, None))
    assert held.bytes is None
    fallen = judge(held, gpu(1000 * MB, None), 2000 * MB)
    assert (fallen.verdict, fallen.freed) == ("back", 2000 * MB)
    assert judge(held, gpu(2500 * MB, None), 2000 * MB).verdict == "unknown"
    assert judge(held, gpu(3000 * MB, None), 2000 * MB).verdict == "unknown"
    unexpected = judge(held, gpu(2500 * MB, None))
    assert (unexpected.verdict, unexpected.freed) == ("back", 500 * MB)
    assert judge(held, gpu(3500 * MB, None)).verdict == "unknown"


def test_nothing_is_expected_of_a_process_that_took_nothing() -> None:
    held = hold(gpu(3000 * MB, None))
    found = judge(held, gpu(3500 * MB, None), 0)
    assert (found.verdict, found.freed) == ("back", 0)


def test_more_than_expected_is_not_counted_as_ours() -> None:
    held = hold(gpu(3000 * MB, None))
    assert judge(held, gpu(0, None), 2000 * MB).freed == 2000 * MB


def test_a_listed_process_without_a_figure() -> None:
    held = hold(gpu(3000 * MB, {PID: None, OTHER: None}))
    assert held.bytes is None
    assert judge(held, gpu(2000 * MB, {OTHER: None}), 1000 * MB).verdict == "back"
    assert judge(held, gpu(3000 * MB, {OTHER: None}), 1000 * MB).verdict == "unknown"


def test_our_figure_is_known_and_another_is_not() -> None:
    held = hold(gpu(3000 * MB, {PID: 1000 * MB, OTHER: None}))
    assert judge(held, gpu(2000 * MB, {OTHER: None})).freed == 1000 * MB
    assert judge(held, gpu(2900 * MB, {OTHER: None})).verdict == "unknown"


def test_pids_of_another_namespace() -> None:
    """None of them left and the use did not fall: ours must be among them."""
    held = hold(gpu(3000 * MB, {7001: 1000 * MB, 7002: 2000 * MB}), foreign_pids=True)
    assert held.bytes is None
    stays = judge(held, gpu(3000 * MB, {7001: 1000 * MB, 7002: 2000 * MB}), 1000 * MB)
    assert stays.verdict == "held"
    assert judge(held, gpu(2000 * MB, {7002: 2000 * MB}), 1000 * MB).freed == 1000 * MB


def test_a_gpu_that_was_not_read_before() -> None:
    held = hold(GpuState(TOTAL, reason="NVML is not answering"))
    found = judge(held, gpu(0, {}))
    assert (found.verdict, found.reason) == ("unknown", "NVML is not answering")


def launched(then: GpuState, before: GpuState, *, foreign_pids: bool = False) -> Hold:
    return Hold("GPU-a", PID, before, foreign_pids, then)


def test_a_worker_that_is_not_listed_though_the_use_has_grown_holds_what_nobody_knows() -> None:
    """In a container that lists no processes 0 was learned, and was the cap of the next load."""
    held = launched(gpu(300 * MB, {}), gpu(1300 * MB, {}))
    assert (held.bytes, held.grown) == (None, 1000 * MB)
    assert judge(held, gpu(1300 * MB, {}), held.grown).verdict == "unknown"
    assert judge(held, gpu(300 * MB, {}), held.grown).freed == 1000 * MB


def test_what_was_in_use_at_the_launch_is_not_the_workers() -> None:
    held = launched(gpu(3300 * MB, {OTHER: 3000 * MB}), gpu(1310 * MB, {OTHER: 1000 * MB}))
    assert (held.bytes, held.grown) == (0, 10 * MB)
    assert judge(held, gpu(1310 * MB, {OTHER: 1000 * MB})).verdict == "back"


def test_a_gpu_that_was_not_read_at_the_launch_may_be_in_use_by_the_worker() -> None:
    held = hold(gpu(3000 * MB, {OTHER: 1000 * MB}))
    assert (held.bytes, held.grown) == (None, None)
    assert hold(gpu(1000 * MB, {OTHER: 1000 * MB})).bytes == 0


def test_the_growth_where_pids_or_processes_tell_nothing() -> None:
    pids = {7001: 1000 * MB}, {7001: 1000 * MB, 7002: 2000 * MB}
    foreign = launched(gpu(1000 * MB, pids[0]), gpu(3000 * MB, pids[1]), foreign_pids=True)
    silent = launched(gpu(1000 * MB, None), gpu(3000 * MB, None))
    for held in (foreign, silent):
        assert (held.bytes, held.grown) == (None, 2000 * MB)
    unread = GpuState(TOTAL, reason="NVML is not answering")
    assert launched(unread, gpu(3000 * MB, {PID: 1000 * MB})).grown is None
