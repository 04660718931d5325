"""Which models that are not loaded keep their weights in the host's memory.

Pure. All memory is in bytes, all times in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..domain import Place


@dataclass(frozen=True, slots=True)
class Weights:
    """A prepared form as this decision sees it: the size of its files, and its use."""

    key: str
    size: int
    keep: Place | None  # None: by use
    idle_for: float  # since it was loaded or made


def to_hold(weights: Iterable[Weights], room: int) -> tuple[str, ...]:
    """Return the keys of those to hold within `room`.

    First those that are to be kept in RAM, then those that nothing is said of; among equals the one
    used last. One that does not fit leaves its place to the next.
    """
    chosen = []
    for each in sorted((w for w in weights if w.keep in {None, "ram"}), key=_rank):
        if each.size <= room:
            chosen.append(each.key)
            room -= each.size
    return tuple(chosen)


def _rank(weights: Weights) -> tuple[bool, float, str]:
    return weights.keep != "ram", weights.idle_for, weights.key


def idle_time(keep: Place | None, ttl: float | None, default: float | None) -> float | None:
    """Return after how long without a request a model is unloaded; None: never.

    `ttl` is what was asked for this model. Where nothing was, a model that is to be kept on the
    GPU stays loaded, and one that is to be kept elsewhere goes once it has answered.
    """
    if ttl is not None:
        return ttl if ttl >= 0 else None
    if keep is None:
        return default
    return None if keep == "gpu" else 0.0
