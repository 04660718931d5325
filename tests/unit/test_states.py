"""The table of a worker's moves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from modelsup.supervisor.states import (
    CHARGED,
    COMING_UP,
    ENDED,
    GOING_DOWN,
    MOVES,
    IllegalMove,
    State,
    check_move,
)


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(State)


def test_the_usual_life() -> None:
    life = [State.STARTING, State.LOADING, State.WARMING, State.READY]
    for old, new in pairwise([*life, State.DRAINING, State.STOPPING, State.GONE]):
        check_move(old, new)


@pytest.mark.parametrize("state", sorted(COMING_UP | GOING_DOWN | {State.READY}))
def test_any_live_worker_may_end_badly(state: State) -> None:
    assert {State.FAILED, State.STUCK, State.LEAKED} <= MOVES[state]


@pytest.mark.parametrize("state", sorted(COMING_UP | {State.READY, State.DRAINING}))
def test_any_live_worker_may_be_told_to_stop(state: State) -> None:
    check_move(state, State.STOPPING)


@pytest.mark.parametrize("state", [State.GONE, State.FAILED])
def test_the_end_is_final(state: State) -> None:
    assert not MOVES[state]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (State.STARTING, State.READY),
        (State.READY, State.LOADING),
        (State.DRAINING, State.READY),
        (State.STOPPING, State.DRAINING),
        (State.GONE, State.STARTING),
        (State.READY, State.READY),
    ],
)
def test_a_move_that_is_not_in_the_table_raises(old: State, new: State) -> None:
    with pytest.raises(IllegalMove, match=f"from {old} to {new}"):
        check_move(old, new)


def test_what_did_not_end_well_stays_charged() -> None:
    """A stuck or leaked worker still holds memory that nobody else can have."""
    assert {State.STUCK, State.LEAKED} <= CHARGED
    assert not CHARGED & {State.GONE, State.FAILED}
    assert {State.GONE, State.FAILED} == ENDED - CHARGED
