"""What a benchmark hands over: a JSON file with all samples, and a table to read."""

from __future__ import annotations

import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from .machine import machine, versions

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "results"
TABLE_WIDTH = 120  # columns where the output is not a terminal


@dataclass(frozen=True)
class Report:
    """One benchmark's outcome. `columns` and `lines` are the table; `data` is for programs."""

    benchmark: str
    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    notes: Sequence[str]
    data: dict[str, Any]
    failed: bool = False  # something was seen that must not be


def summary(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, minimum, maximum and the samples themselves."""
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "samples": list(samples),
    }


def progress(text: str) -> None:
    """Say on standard error what is being measured."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def publish(report: Report, target: Path | None) -> None:
    """Print the table and write the JSON file, into `results` where no target is given."""
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH)
    table = Table(*report.columns, title=report.title, title_justify="left")
    for column in table.columns[1:]:
        column.justify = "right"
    for line in report.lines:
        table.add_row(*line)
    console.print(table)
    for note in report.notes:
        console.print(f"- {note}", highlight=False)
    file = target or RESULTS / f"{report.benchmark}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    document = {
        "benchmark": report.benchmark,
        "taken_at": time.time(),
        "versions": versions(),
        "machine": machine(),
        **report.data,
    }
    file.write_text(json.dumps(document, indent=2) + "\n")
    progress(f"written to {file}")
