"""The measurement as a table, for the terminal and for the page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..output import size
from ..tables import Table

if TYPE_CHECKING:
    from .results import Bench

PLACE_NAMES: Final = {"disk": "on the disk", "ram": "in RAM", "gpu": "loaded"}


def table(bench: Bench) -> Table:
    """Return what each place costs."""
    rows = tuple(
        (
            row.model,
            PLACE_NAMES[row.place],
            f"{row.seconds * 1000:.1f} ms",
            size(row.idle_bytes),
            size(row.peak_bytes),
            size(row.gpu_idle_bytes),
            size(row.gpu_peak_bytes),
        )
        for row in bench.rows
    )
    return Table(
        "The first answer after a rest, and what each place takes",
        ("MODEL", "KEPT", "ANSWER", "RAM IDLE", "RAM PEAK", "GPU IDLE", "GPU PEAK"),
        rows,
        (
            f"answer: median of {bench.rounds} rounds, as this program saw it, a load included",
            "RAM idle: the weights that are kept, or the worker's private memory",
            "RAM peak: private memory of the worker, beside weights that it shares with the cache",
            *bench.notes,
        ),
    )
