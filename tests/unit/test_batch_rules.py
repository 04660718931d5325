"""How many requests go into a call: what a model's options say, beside what pays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.worker.batch_rules import BatchRules
from modelsup.worker.contract import LaunchSpec

PREFERRED = BatchRules(max_rows=16, max_delay=1.0, preferred=(4, 8))


@pytest.mark.parametrize(
    ("rows", "age", "full", "count"),
    [
        ([1, 1, 1], 0.5, False, 0),  # waits for a fourth
        ([1, 1, 1, 1], 0.5, False, 4),
        ([1, 1, 1, 1, 1], 0.5, False, 4),
        ([1] * 9, 0.5, False, 8),
        ([3, 3, 2, 1], 0.5, False, 3),
        ([3], 0.5, False, 0),
        ([3], 0.5, True, 1),  # the next one is too large to make any size with it
        ([1] * 9, 1.0, False, 9),  # has waited long enough for any size
    ],
)
def test_preferred_sizes(rows: list[int], age: float, full: bool, count: int) -> None:
    assert PREFERRED.count(rows, age, full=full) == count


def test_without_a_delay_a_preferred_size_goes_first_and_nothing_waits() -> None:
    rules = BatchRules(max_rows=16, preferred=(4,))
    assert rules.count([1] * 6, 100.0, full=True) == 4
    assert rules.count([1] * 3, 0.0, full=False) == 3


def test_a_delay_alone_waits_for_a_full_call() -> None:
    rules = BatchRules(max_rows=16, max_delay=1.0)
    assert rules.count([1, 1], 0.9, full=False) == 0
    assert rules.count([1, 1], 0.9, full=True) == 2
    assert rules.count([1, 1], 1.0, full=False) == 2


def test_preferred_sizes_take_the_place_of_what_was_learned() -> None:
    assert BatchRules(max_rows=16).most(3, 0.0) == 3
    assert PREFERRED.most(3, 0.5) == 8
    assert PREFERRED.most(3, 1.0) == 16


def test_rules_of_a_launch() -> None:
    spec = LaunchSpec(
        *("uid", "m", "1", "echo", None, "secret", "/tmp"),
        max_batch_size=8,
        max_delay=0.5,
        preferred_batch_sizes=[4, 8, 16],
    )
    assert BatchRules.of(LaunchSpec.from_json(spec.to_json())) == BatchRules(8, 0.5, (4, 8))
    assert BatchRules.of(LaunchSpec("uid", "m", "1", "echo", None, "secret", "/tmp")) == (
        BatchRules()
    )


@given(
    st.lists(st.integers(1, 8), min_size=1, max_size=20),
    st.floats(0, 10),
    st.booleans(),
    st.sets(st.integers(1, 64)),
    st.floats(0, 5),
)
def test_nobody_waits_for_longer_than_the_delay(
    rows: list[int], age: float, full: bool, preferred: set[int], delay: float
) -> None:
    rules = BatchRules(64, delay, tuple(preferred))
    count = rules.count(rows, age, full=full)
    assert 0 <= count <= len(rows)
    assert count or (age < delay and not full)
