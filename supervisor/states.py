"""Worker states, their named sets, and the table of allowed moves."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a worker is in its life."""

    STARTING = "starting"  # asked for, not forked yet
    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    PARKED = "parked"  # what it had of its GPU is in host memory
    DRAINING = "draining"  # no new requests; those in flight go on
    STOPPING = "stopping"  # told to exit
    GONE = "gone"  # exit collected and memory back
    FAILED = "failed"  # ended by itself, with a cause
    STUCK = "stuck"  # does not exit even after SIGKILL; its memory stays charged
    LEAKED = "leaked"  # exited, but its memory did not come back


COMING_UP: Final = frozenset({State.STARTING, State.LOADING, State.WARMING})
GOING_DOWN: Final = frozenset({State.DRAINING, State.STOPPING})
ENDED: Final = frozenset({State.GONE, State.FAILED, State.LEAKED})
CHARGED: Final = frozenset(State) - {State.GONE, State.FAILED}  # still holds memory

_NEXT: Final[dict[State, frozenset[State]]] = {
    State.STARTING: frozenset({State.LOADING, State.STOPPING}),
    State.LOADING: frozenset({State.WARMING, State.STOPPING}),
    State.WARMING: frozenset({State.READY, State.STOPPING}),
    State.READY: frozenset({State.PARKED, State.DRAINING, State.STOPPING}),
    State.PARKED: frozenset({State.WARMING, State.STOPPING}),
    State.DRAINING: frozenset({State.STOPPING}),
    State.STOPPING: frozenset({State.GONE}),
}
_BADLY: Final = frozenset({State.FAILED, State.STUCK, State.LEAKED})  # from any live state
MOVES: Final[dict[State, frozenset[State]]] = {
    **{state: following | _BADLY for state, following in _NEXT.items()},
    State.STUCK: frozenset({State.GONE, State.FAILED, State.LEAKED}),
    State.LEAKED: frozenset({State.GONE}),
    State.FAILED: frozenset(),
    State.GONE: frozenset(),
}


class IllegalMove(AssertionError):
    """A move that the table does not allow: a bug in the fleet."""


def check_move(old: State, new: State) -> None:
    """Raise IllegalMove unless a worker may go from `old` to `new`."""
    if new not in MOVES[old]:
        raise IllegalMove(f"a worker may not go from {old} to {new}")
