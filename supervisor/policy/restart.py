"""When a crashed worker that is still wanted may start again, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

FIRST_DELAY: Final = 0.5  # seconds
LONGEST_DELAY: Final = 30.0  # seconds
HEALTHY_AFTER: Final = 60.0  # seconds of being ready that wipe out earlier crashes
CRASH_WINDOW: Final = 60.0  # seconds
CRASH_LIMIT: Final = 5  # crashes within the window that end all tries
PERMANENT_CAUSES: Final = frozenset({"load_error", "bad_model"})

_DOUBLINGS: Final = 6  # 0.5 s doubled six times is past the longest delay


@dataclass(frozen=True, slots=True)
class RestartHistory:
    """What the policy remembers of one worker between crashes.

    `crashes` holds the times of the crashes within the window, in seconds of the caller's
    monotonic clock. `consecutive` counts the crashes since the worker was last healthy.
    """

    crashes: tuple[float, ...] = ()
    consecutive: int = 0


@dataclass(frozen=True, slots=True)
class Restart:
    """Start again after `delay` seconds."""

    delay: float
    reason: str


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Do not start again until someone asks."""

    reason: str


def after_crash(
    history: RestartHistory,
    now: float,
    healthy_since: float | None,
    cause: str,
    jitter: float,
) -> tuple[RestartHistory, Restart | GiveUp]:
    """Decide what follows a crash at `now`.

    `healthy_since` is when the crashed worker became ready, None if it never did. `jitter`, from
    0 to 1, takes up to half of the delay away, so that workers that died together do not all
    start together. Raises ValueError for a jitter out of its range.

    - permanent cause              → GiveUp
    - CRASH_LIMIT in CRASH_WINDOW  → GiveUp
    - otherwise                    → Restart, the delay doubling with each crash in a row
    """
    if not 0 <= jitter <= 1:
        raise ValueError(f"jitter must be from 0 to 1, got {jitter}")
    if healthy_since is not None and now - healthy_since >= HEALTHY_AFTER:
        history = RestartHistory()
    recent = tuple(t for t in history.crashes if now - t < CRASH_WINDOW)
    updated = RestartHistory((*recent, now), history.consecutive + 1)
    if cause in PERMANENT_CAUSES:
        return updated, GiveUp(f"{cause} would happen again on every try")
    if len(updated.crashes) >= CRASH_LIMIT:
        return updated, GiveUp(
            f"{len(updated.crashes)} crashes within {CRASH_WINDOW:.0f} s, the last one: {cause}"
        )
    delay = _delay(history.consecutive) * (1 - jitter / 2)
    return updated, Restart(delay, f"crash {updated.consecutive} in a row ({cause})")


def _delay(doublings: int) -> float:
    return min(FIRST_DELAY * 2.0 ** min(doublings, _DOUBLINGS), LONGEST_DELAY)
