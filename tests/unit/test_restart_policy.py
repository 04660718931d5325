"""The restart policy: how long to wait, what resets it, and when it gives up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.policy.restart import (
    CRASH_LIMIT,
    CRASH_WINDOW,
    FIRST_DELAY,
    HEALTHY_AFTER,
    LONGEST_DELAY,
    PERMANENT_CAUSES,
    GiveUp,
    Restart,
    RestartHistory,
    after_crash,
)

gaps = st.lists(st.floats(0, 200), min_size=1, max_size=40)
jitters = st.floats(0, 1)


def crash_at(times: list[float], jitter: float = 0.0) -> list[Restart | GiveUp]:
    """Return the decisions after crashes of a worker that never became ready."""
    history, decisions = RestartHistory(), []
    for now in times:
        history, decision = after_crash(history, now, None, "signal:9", jitter)
        decisions.append(decision)
    return decisions


def running_sum(steps: list[float]) -> list[float]:
    return [sum(steps[: i + 1]) for i in range(len(steps))]


def test_delays_double_up_to_the_longest() -> None:
    decisions = crash_at([100.0 * i for i in range(9)])
    delays = [d.delay for d in decisions if isinstance(d, Restart)]
    assert delays == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]


def test_the_fifth_crash_within_a_minute_is_the_last() -> None:
    decisions = crash_at([0, 10, 20, 30, 59])
    assert all(isinstance(d, Restart) for d in decisions[:4])
    assert decisions[4] == GiveUp("5 crashes within 60 s, the last one: signal:9")


def test_crashes_older_than_the_window_do_not_count() -> None:
    assert isinstance(crash_at([0, 10, 20, 30, 60])[-1], Restart)


def test_a_minute_of_health_forgets_earlier_crashes() -> None:
    burdened = RestartHistory((1.0, 2.0, 3.0, 4.0), 4)
    history, decision = after_crash(burdened, 65.0, 65.0 - HEALTHY_AFTER, "unknown", 0)
    assert history == RestartHistory((65.0,), 1)
    assert decision == Restart(FIRST_DELAY, "crash 1 in a row (unknown)")


def test_less_than_a_minute_of_health_forgets_nothing() -> None:
    burdened = RestartHistory((1.0, 2.0, 3.0), 3)
    history, decision = after_crash(burdened, 50.0, 5.0, "unknown", 0)
    assert history.consecutive == 4
    assert decision == Restart(4.0, "crash 4 in a row (unknown)")


@given(st.sampled_from(sorted(PERMANENT_CAUSES)), st.floats(0, 1e9), jitters)
def test_a_permanent_cause_is_never_retried(cause: str, now: float, jitter: float) -> None:
    _, decision = after_crash(RestartHistory(), now, 0.0, cause, jitter)
    assert decision == GiveUp(f"{cause} would happen again on every try")


@given(gaps, jitters)
def test_a_delay_stays_within_its_bounds(steps: list[float], jitter: float) -> None:
    for decision in crash_at(running_sum(steps), jitter):
        if isinstance(decision, Restart):
            assert FIRST_DELAY / 2 <= decision.delay <= LONGEST_DELAY


@given(gaps)
def test_it_gives_up_exactly_when_the_window_is_full(steps: list[float]) -> None:
    times = running_sum(steps)
    for i, decision in enumerate(crash_at(times)):
        in_window = sum(times[i] - t < CRASH_WINDOW for t in times[: i + 1])
        assert isinstance(decision, GiveUp) == (in_window >= CRASH_LIMIT)


@given(gaps)
def test_the_history_does_not_grow_without_bound(steps: list[float]) -> None:
    history = RestartHistory()
    for now in running_sum([step + 15 for step in steps]):
        history, _ = after_crash(history, now, None, "unknown", 0.5)
        assert len(history.crashes) <= CRASH_LIMIT


@given(gaps, jitters, jitters)
def test_jitter_only_shortens(steps: list[float], one: float, other: float) -> None:
    low, high = sorted((one, other))
    times = running_sum(steps)
    for more, less in zip(crash_at(times, low), crash_at(times, high), strict=True):
        if isinstance(more, Restart) and isinstance(less, Restart):
            assert more.delay >= less.delay
        else:
            assert more == less


@pytest.mark.parametrize("jitter", [-0.1, 1.1, float("nan")])
def test_jitter_out_of_range_is_a_bug(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter must be from 0 to 1"):
        after_crash(RestartHistory(), 0.0, None, "unknown", jitter)
