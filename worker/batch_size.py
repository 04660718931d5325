"""How many rows to put into one call: as many as make each row cheaper."""

from __future__ import annotations

from collections import deque
from typing import Final

START: Final = 16  # rows
GAIN: Final = 0.9  # of a row's seconds in any smaller call: what a larger one must stay below
SAMPLES: Final = 4  # late calls of a size of which the quickest counts: the first one is slow
PATIENCE: Final = 200  # calls before a size that did not pay is tried again


class BatchSize:
    """Learns from the calls of one signature. Pure: it is told how long each took.

    A model whose calls cost about the same for any number of rows soon takes `most`. One whose
    rows are no cheaper together comes down to single rows, which answer sooner and need less
    memory.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = min(START, most)
        self._late: dict[int, deque[float]] = {}  # seconds of a row, by the size's power of two
        self._rest = 0  # calls left before a larger size is tried again

    @property
    def limit(self) -> int:
        """The most rows that the next call may have."""
        return self._limit

    def called(self, rows: int, seconds: float) -> None:
        """Learn from a call that succeeded."""
        size, at_limit = _power(rows), _power(self._limit)
        late = self._late.setdefault(size, deque(maxlen=SAMPLES))
        late.append(seconds / max(rows, 1))
        self._rest -= 1
        if size < at_limit or len(late) < SAMPLES:
            return
        if self._pays(size):
            self._grow()
        else:
            self._limit, self._rest = max(1, self._limit // 2), PATIENCE

    def _pays(self, size: int) -> bool:
        smaller = [min(late) for power, late in self._late.items() if power < size]
        return min(self._late[size]) < GAIN * min(smaller, default=float("inf"))

    def _grow(self) -> None:
        if self._limit < self._most and self._rest <= 0:
            self._limit = min(2 * self._limit, self._most)
            self._late.pop(_power(self._limit), None)  # those may be of long ago


def _power(rows: int) -> int:
    """Return the power of two that holds so many rows: 0 for 1, 2 for 3 and 4."""
    return max(rows - 1, 0).bit_length()
