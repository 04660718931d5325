"""Sizes and durations: what is read, what is refused, and in which words."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.units import (
    MAX_SIZE,
    UnitError,
    format_bytes,
    format_seconds,
    parse_duration,
    parse_keep_alive,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4_000_000_000),
        ("512MB", 512_000_000),
        ("1.5GiB", 1_610_612_736),
        (" 2 kib ", 2048),
        ("0.1GB", 100_000_000),
        ("17", 17),
        ("17B", 17),
        (17, 17),
        (4e9, 4_000_000_000),
        (0, 0),
    ],
)
def test_sizes_are_read_exactly(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30.0),
        ("10m", 600.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("250ms", 0.25),
        ("1.5", 1.5),
        (1e-05, 0.00001),
        (1e-300, 1e-300),
        (0.25, 0.25),
        (0, 0.0),
    ],
)
def test_durations_are_read_exactly(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


BAD = [
    "",
    "GB",
    "-1",
    "-1s",
    -1,
    "1e3",
    "nan",
    float("nan"),
    float("inf"),
    True,
    None,
    [],
    "٣",
    "1 2",
]


@pytest.mark.parametrize("value", [*BAD, "4XB", "4G", "1.5", 1.5])
def test_a_bad_size_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(UnitError, match="expected a size such as"):
        parse_size(value)


@pytest.mark.parametrize("value", [*BAD, "5 fortnights", "1M", "5S"])
def test_a_bad_duration_is_refused_with_an_example(value: object) -> None:
    with pytest.raises(UnitError, match="expected a duration such as"):
        parse_duration(value)


def test_the_unknown_unit_is_named() -> None:
    with pytest.raises(UnitError, match="unknown unit 'XB' in '4XB'"):
        parse_size("4XB")


def test_what_no_machine_can_hold_is_refused() -> None:
    assert parse_size(MAX_SIZE) == MAX_SIZE
    with pytest.raises(UnitError, match="more bytes than any memory"):
        parse_size(MAX_SIZE + 1)
    with pytest.raises(UnitError, match="longer than the longest"):
        parse_duration("3651d")


def test_an_error_does_not_repeat_a_whole_bad_body() -> None:
    with pytest.raises(UnitError) as caught:
        parse_size("x" * 100_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (48_300_000, "48.3 MB"),
        (999_999, "1.0 MB"),
        (-1_200_000_000, "-1.2 GB"),
        (5_000_000_000_000, "5.0 TB"),
    ],
)
def test_bytes_for_people(size: int, text: str) -> None:
    assert format_bytes(size) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0042, "4 ms"),
        (0.9999, "1.00 s"),
        (1.25, "1.25 s"),
        (59.999, "1m 0s"),
        (125, "2m 5s"),
        (11_040, "3h 4m"),
        (176_400, "2d 1h"),
        (-0.5, "-500 ms"),
    ],
)
def test_seconds_for_people(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@given(st.integers(0, MAX_SIZE))
def test_a_printed_size_reads_back_within_its_rounding(size: int) -> None:
    back = parse_size(format_bytes(size).replace(" ", ""))
    assert abs(back - size) <= max(size * 0.051, 0)


@given(st.integers(0, MAX_SIZE))
def test_a_number_of_bytes_and_its_text_are_one(size: int) -> None:
    assert parse_size(size) == parse_size(str(size)) == size


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_size, parse_duration):
        with suppress(UnitError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("0", 0.0), (0, 0.0), ("30s", 30.0), ("10m", 600.0), ("-1", -1.0), (-5, -1.0), ("-2h", -1.0)],
)
def test_a_keep_alive_is_a_duration_or_negative(given: object, seconds: float) -> None:
    assert parse_keep_alive(given) == seconds


@pytest.mark.parametrize("given", ["soon", "", "-", "--1", "-1y", True, None, float("-inf")])
def test_a_keep_alive_that_is_neither_is_refused(given: object) -> None:
    with pytest.raises(UnitError, match="a negative number never"):
        parse_keep_alive(given)
