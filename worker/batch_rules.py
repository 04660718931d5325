"""What a model's calls are to be made of, and when the next one begins. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .contract import LaunchSpec


@dataclass(frozen=True, slots=True)
class BatchRules:
    """How many rows a call has, and how long requests wait for others to share it.

    `preferred` are sizes in rows; without any, how many rows pay is learned. A request never waits
    longer than `max_delay` seconds for others; then it goes with all that there are.
    """

    max_rows: int = 64
    max_delay: float = 0.0
    preferred: tuple[int, ...] = ()

    @classmethod
    def of(cls, spec: LaunchSpec) -> BatchRules:
        """Return the rules of a launch spec; sizes that no call may have are left out."""
        preferred = (size for size in spec.preferred_batch_sizes if size <= spec.max_batch_size)
        return cls(spec.max_batch_size, spec.max_delay, tuple(preferred))

    def most(self, learned: int, age: float) -> int:
        """Return how many rows the call may have whose oldest request is `age` seconds old.

        `learned` is how many pay.
        """
        if not self.preferred:
            return learned
        return self.max_rows if self._is_overdue(age) else max(self.preferred)

    def count(self, rows: Sequence[int], age: float, *, full: bool) -> int:
        """Return how many of the requests that may share a call go into it now; 0: all wait.

        `rows` are those of each, the oldest request first, which is `age` seconds old. `full` says
        that there is no room for more.

        overdue                     → all
        some make a preferred size  → those that make the largest one
        full, or waiting is off     → all
        else                        → none
        """
        if self._is_overdue(age):
            return len(rows)
        sizes = list(accumulate(rows))
        preferred = [n for n, size in enumerate(sizes, 1) if size in self.preferred]
        if preferred:
            return preferred[-1]
        return len(rows) if full or not self.max_delay else 0

    def _is_overdue(self, age: float) -> bool:
        return 0 < self.max_delay <= age
