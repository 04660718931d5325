"""Sizes and durations as people write them: the one place that reads and prints units."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Final

SIZE_UNITS: Final = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
    "TIB": 2**40,
}
DURATION_UNITS: Final = {
    "": Decimal(1),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
MAX_SIZE: Final = 2**63 - 1  # bytes: what a database column and a C program can hold
MAX_DURATION: Final = 3650 * 86400  # seconds: beyond it, event loops overflow

_NUMBER_AND_UNIT: Final = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?)\s*([A-Za-z]*)", re.ASCII)
_LONGEST_ECHO: Final = 60  # characters of bad input that an error repeats


class UnitError(ValueError):
    """A size or duration that cannot be read. The message says what was expected."""


def parse_size(value: object) -> int:
    """Return bytes from a number of bytes or from text such as "4GB", "512MB" or "1.5GiB".

    KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024. Case does not
    matter. Raises UnitError.
    """
    expected = 'expected a size such as "4GB", "1.5GiB" or a whole number of bytes'
    number, unit = _split(value, expected)
    factor = SIZE_UNITS.get(unit.upper())
    if factor is None:
        raise UnitError(f"{expected}, got the unknown unit {unit!r} in {_quote(value)}")
    size = number * factor
    if factor == 1 and size != size.to_integral_value():
        raise UnitError(f"{expected}, got {_quote(value)}")
    if size > MAX_SIZE:
        raise UnitError(f"{_quote(value)} is more bytes than any memory holds")
    return int(size)


def parse_duration(value: object) -> float:
    """Return seconds from a number of seconds or from text such as "30s", "10m" or "250ms".

    The units are ms, s, m (minutes), h and d. Raises UnitError.
    """
    expected = 'expected a duration such as "30s", "10m", "250ms" or a number of seconds'
    number, unit = _split(value, expected)
    factor = DURATION_UNITS.get(unit)
    if factor is None:
        raise UnitError(f"{expected}, got the unknown unit {unit!r} in {_quote(value)}")
    seconds = number * factor
    if seconds > MAX_DURATION:
        raise UnitError(f"{_quote(value)} is longer than the longest duration, 3650d")
    return float(seconds)


def parse_keep_alive(value: object) -> float:
    """Return how many seconds a model stays without a request; -1.0 for a negative value: always.

    Takes what `parse_duration` takes, and the same with a minus. Raises UnitError.
    """
    try:
        if isinstance(value, str) and value.strip().startswith("-"):
            parse_duration(value.strip()[1:])
            return -1.0
        if isinstance(value, int | float) and not isinstance(value, bool) and value < 0:
            parse_duration(-value)
            return -1.0
        return parse_duration(value)
    except UnitError as error:
        raise UnitError(f"{error}; 0 is after each request, a negative number never") from None


def format_bytes(size: int) -> str:
    """Return a size for people, in powers of 1000: "512 B", "48.3 MB", "-1.2 GB"."""
    sign, rest = ("-" if size < 0 else ""), abs(size)
    if rest < 1000:
        return f"{sign}{rest} B"
    amount = float(rest)
    for unit in ("KB", "MB", "GB"):
        amount /= 1000
        if amount < 999.95:  # above, one decimal would print as 1000.0
            return f"{sign}{amount:.1f} {unit}"
    return f"{sign}{amount / 1000:.1f} TB"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: "4 ms", "1.25 s", "2m 5s", "3h 4m", "2d 1h"."""
    if seconds < 0:
        return f"-{format_seconds(-seconds)}"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.995:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours}h"


def _split(value: object, expected: str) -> tuple[Decimal, str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"{expected}, got {_quote(value)}")
    if not isinstance(value, str):
        if not 0 <= value < math.inf:
            raise UnitError(f"{expected}, got {_quote(value)}")
        return Decimal(str(value)), ""
    found = _NUMBER_AND_UNIT.fullmatch(value.strip())
    if found is None:
        raise UnitError(f"{expected}, got {_quote(value)}")
    return Decimal(found[1]), found[2]


def _quote(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}..."
