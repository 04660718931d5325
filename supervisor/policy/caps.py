"""The GPU cap of a model for which nobody chose one. All sizes are in bytes."""

from __future__ import annotations

from typing import Final

MODEST_FLOOR: Final = 512 * 1024**2  # the libraries' work spaces
MODEST_PER_FILE_BYTE: Final = 3  # weights, once more while they are read, and activations
GENEROUS: Final = 4  # times the modest cap
HEADROOM: Final = 0.25  # of what was measured: larger batches than there were so far
LEAST_HEADROOM: Final = 128 * 1024**2


def automatic_caps(measured: int | None, files: int, room: int) -> list[int]:
    """Return the caps that a model may be given, the smallest first.

    `measured` is what it has taken at most so far, None if nobody knows; `files` is the size of
    its files, and `room` the largest cap that there is a budget for.

    measured → that, with headroom
    unknown  → a modest estimate, or a generous one where there is room for it now
    """
    if measured is not None:
        headroom = max(int(measured * HEADROOM), LEAST_HEADROOM)
        return [max(measured, min(measured + headroom, room))]
    modest = MODEST_FLOOR + MODEST_PER_FILE_BYTE * files
    generous = min(GENEROUS * modest, room)
    return [modest, generous] if generous > modest else [modest]
