"""What people read: sizes, durations, tables, receipts."""

from __future__ import annotations

import dataclasses

import click
import pytest
from modelsup.cli import output
from modelsup.cli.parameters import duration
from modelsup.cli.receipts import previous_text, receipt_text
from modelsup.client.answers import Freed, Receipt, UnloadSeconds

RECEIPT = Receipt(
    model="resnet50",
    worker="w1",
    outcome="drained",
    freed=Freed(142_000_000, {}),
    verified=True,
    seconds=UnloadSeconds(total=0.031),
)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_951, "100 kB"),
        (142_000_000, "142 MB"),
        (999_600_000, "1.0 GB"),
        (4_000_000_000, "4.0 GB"),
        (5 * 10**15, "5000 TB"),
        (-2_000_000, "-2.0 MB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert output.size(count) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0.0, "0.00 s"),
        (0.031, "0.03 s"),
        (9.999, "10.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (185.0, "3 min 5 s"),
        (7800.0, "2 h 10 min"),
        (356_400.0, "4 d 3 h"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert output.seconds(value) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("30", 30), ("30s", 30), ("1.5h", 5400), ("10m", 600), ("250ms", 0.25), (" 1 d ", 86400)],
)
def test_durations_are_read(text: str, expected: float) -> None:
    assert duration(text) == expected


@pytest.mark.parametrize("text", ["", "s", "-1", "1x", "1e3", "nan", "1h30m"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration; write 30s"):
        duration(text)


def test_columns_are_as_wide_as_their_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("MODEL", "STATE"), [("a", "ready"), ("longer-name", "failed")])

    assert capsys.readouterr().out == (
        "MODEL        STATE\na            ready\nlonger-name  failed\n"
    )


def test_no_color_is_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.paint("ready", "green") == "\x1b[32mready\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.paint("ready", "green") == "ready"


def test_a_receipt_is_a_sentence() -> None:
    assert receipt_text(RECEIPT) == "resnet50: freed 142 MB host memory in 0.03 s, verified"


def test_a_receipt_says_what_was_unusual() -> None:
    receipt = dataclasses.replace(
        RECEIPT,
        outcome="forced",
        verified=False,
        reason="NVML is not answering",
        in_flight_aborted=2,
        freed=Freed(1_000_000, {"GPU-1": 3_000_000_000, "GPU-2": 1_000_000_000}),
    )

    assert receipt_text(receipt) == (
        "resnet50: freed 1.0 MB host memory and 4.0 GB GPU memory in 0.03 s, "
        "NOT verified: NVML is not answering, forced, 2 running predictions aborted"
    )


def test_the_model_that_a_client_let_go_of() -> None:
    assert previous_text("resnet50", RECEIPT, None) == [receipt_text(RECEIPT)]
    assert previous_text("m", None, "anna holds it") == ["m stays loaded: anna holds it"]
    assert previous_text(None, None, None) == []
