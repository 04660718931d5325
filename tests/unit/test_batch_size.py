"""Batches grow where rows are cheaper together, and stay small where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from modelsup.worker.batch_size import PATIENCE, SAMPLES, START, BatchSize

if TYPE_CHECKING:
    from collections.abc import Callable


def serve(size: BatchSize, calls: int, cost: Callable[[int], float]) -> list[int]:
    """Make so many calls as large as allowed, after one of a row; return the sizes."""
    size.called(1, cost(1))
    sizes = []
    for _ in range(calls):
        sizes.append(size.limit)
        size.called(size.limit, cost(size.limit))
    return sizes


def test_a_call_that_costs_the_same_for_any_rows_takes_the_most() -> None:
    sizes = serve(BatchSize(64), 20, lambda rows: 1.0)
    assert sizes[0] == START
    assert sizes[-1] == 64
    assert sizes == sorted(sizes)


def test_rows_that_are_no_cheaper_together_go_one_by_one() -> None:
    size = BatchSize(64)
    sizes = serve(size, 5 * SAMPLES, lambda rows: float(rows))
    assert sizes == sorted(sizes, reverse=True)
    assert size.limit == 1


def test_what_pays_up_to_a_size_stays_there() -> None:
    """And tries the next one only now and then."""
    sizes = serve(BatchSize(64), 2000, lambda rows: 1.0 + max(0, rows - 16))
    late = sizes[100:]
    assert set(late) == {16, 32}
    assert late.count(32) <= SAMPLES * (1 + len(late) // PATIENCE)


def test_what_has_become_cheaper_is_found_again() -> None:
    size = BatchSize(64)
    serve(size, 5 * SAMPLES, lambda rows: float(rows))
    serve(size, 10 * PATIENCE, lambda rows: 1.0)
    assert size.limit == 64


def test_one_slow_call_decides_nothing() -> None:
    size = BatchSize(64)
    serve(size, 20, lambda rows: 1.0)
    size.called(64, 1000.0)
    assert size.limit == 64


def test_small_calls_do_not_move_it() -> None:
    size = BatchSize(64)
    for _ in range(100):
        size.called(1, 1.0)
        size.called(8, 100.0)
    assert size.limit == START


@given(st.integers(1, 300), st.lists(st.tuples(st.integers(0, 400), st.floats(0, 1e6))))
def test_it_never_passes_the_most_and_never_falls_below_one(
    most: int, calls: list[tuple[int, float]]
) -> None:
    size = BatchSize(most)
    for rows, seconds in calls:
        assert 1 <= size.limit <= most
        size.called(rows, seconds)
