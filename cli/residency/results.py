"""What was measured: plain data whose `asdict` is the command's JSON. Sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import click


class BenchFailed(click.ClickException):
    """What stands in the way of a measurement. The message says what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model kept in one place.

    `seconds` is from the first request after a rest to its answer, the median of the rounds. Idle
    is while it rests, the peak that of its worker while it is loaded and answers. The sizes on the
    GPU are None where the model runs on the CPU, or the driver does not tell.
    """

    model: str
    place: str
    seconds: float
    idle_bytes: int
    peak_bytes: int
    gpu_idle_bytes: int | None
    gpu_peak_bytes: int | None


@dataclass(frozen=True, slots=True)
class Bench:
    """All of it. `notes` tell of what could not be measured as it was meant."""

    rounds: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
