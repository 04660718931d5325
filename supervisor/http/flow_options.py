"""The options of a model that say how its requests flow: who shares a call, waits, or serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .request_bodies import Fields

MOST_ROWS: Final = 65536
MOST_SIZES: Final = 64
LONGEST_DELAY: Final = 10.0  # seconds
MOST_AT_ONCE: Final = 65536
MOST_WAITING: Final = 10**6
MOST_REPLICAS: Final = 64


def max_delay_of(fields: Fields) -> float | None:
    """Take `max_delay`: seconds that a request waits for others."""
    return fields.duration("max_delay", highest=LONGEST_DELAY)


def preferred_batch_sizes_of(fields: Fields) -> list[int] | None:
    """Take `preferred_batch_sizes`: rows of a call."""
    return fields.counts("preferred_batch_sizes", 1, MOST_ROWS, MOST_SIZES)


def replicas_of(fields: Fields) -> int | None:
    """Take `replicas`: workers of a model."""
    return fields.count("replicas", 1, MOST_REPLICAS)
