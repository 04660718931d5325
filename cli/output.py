"""How the command talks: data on stdout, talk on stderr, sizes and times for people."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modelsup.client import ModelsupError

_SIZE_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STATE_COLOURS: Final = {
    "ready": "green",
    "running": "green",
    "queued": "yellow",
    "starting": "yellow",
    "loading": "yellow",
    "warming": "yellow",
    "draining": "yellow",
    "stopping": "yellow",
    "restarting": "yellow",
    "failed": "red",
    "stuck": "red",
    "leaked": "red",
}


def say(text: str) -> None:
    """Tell people something; scripts that read stdout do not see it."""
    click.echo(text, err=True)


def say_error(error: ModelsupError) -> None:
    """Tell of an error, with what the worker logged before it."""
    say(f"{paint('error:', 'red')} {error.detail}")
    for line in error.log:
        say(f"  | {line}")
    if error.clients:
        say(f"held by: {', '.join(error.clients)}")
    if error.retry_after is not None:
        say(f"try again in {seconds(error.retry_after)}")


def print_json(value: object) -> None:
    """Print a value, dataclasses included, as JSON."""
    click.echo(json.dumps(value, indent=2, default=_jsonable))


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows under their headers, in columns as wide as their text.

    The column STATE is coloured on a terminal.
    """
    for line in table(headers, rows):
        click.echo(line)


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; the states in its column STATE are painted."""
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    for row in (headers, *rows):
        line = ""
        for header, text, width in zip(headers, row, widths, strict=True):
            colour = _STATE_COLOURS.get(text) if header == "STATE" else None
            line += paint(text, colour) + " " * (width - len(text) + 2)
        yield line.rstrip()


def paint(text: str, colour: str | None) -> str:
    """Colour text, unless NO_COLOR is set. click drops colours where there is no terminal."""
    plain = colour is None or os.environ.get("NO_COLOR")
    return text if plain else click.style(text, fg=colour)


def size(count: int | None) -> str:
    """Return bytes for people, in the decimal units that GPU vendors and disks use: "142 MB"."""
    if count is None:
        return "-"
    value, unit = float(count), 0
    # What would be rounded up to 1000 belongs to the next unit.
    while abs(value) >= 999.5 and unit < len(_SIZE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 0 if unit == 0 or abs(value) >= 99.95 else 1
    return f"{value:.{digits}f} {_SIZE_UNITS[unit]}"


def seconds(duration: float | None) -> str:
    """Return a duration for people: "0.03 s", "12.5 s", "3 min 5 s", "2 h 10 min", "4 d 3 h"."""
    if duration is None:
        return "-"
    if duration < 59.95:
        return f"{duration:.2f} s" if duration < 9.995 else f"{duration:.1f} s"
    whole = round(duration)
    for large, small, names in ((86400, 3600, "d h"), (3600, 60, "h min"), (60, 1, "min s")):
        if whole >= large:
            first, second = names.split()
            return f"{whole // large} {first} {whole % large // small} {second}"
    return f"{whole} s"


def listed(names: Sequence[str]) -> str:
    """Return names for a table cell."""
    return ", ".join(names) or "-"


def is_terminal() -> bool:
    """Return whether talk is read by a person."""
    return sys.stderr.isatty()


def _jsonable(value: object) -> Any:
    from modelsup.client import Receipt

    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return str(value)
    shown = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Receipt) and not value.workers:
        del shown["workers"]  # over HTTP, too, it is there for several workers alone
    return shown
