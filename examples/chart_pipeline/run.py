"""Read charts with models that are loaded when they are needed, and weigh the ways to keep them.

    python -m examples.chart_pipeline.run [--charts 40] [--small] [--json]

A classifier is always loaded. It sends each chart to the readers of its kind: one for bars, one
for pies, two for lines. Readers are kept in a file, in RAM, or loaded, one mode after the other,
with the same charts; first of all as Keras files, without being prepared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np
from modelsup.client import Client, ModelsupError
from rich.console import Console
from rich.table import Table

from benchmarks.machine import machine, versions

from ..local_supervisor import StartError, end_on_sigterm, local_supervisor
from ..steps import step
from .charts import KINDS, draw
from .models import READERS, make_elsewhere
from .modes import MODES, measure
from .pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .charts import Chart
    from .modes import Figures

MB = 1e6  # bytes
ALLOWED_GROWTH = 10 * MB  # of the memory between two charts, over a run
SAME = 1e-3  # what folding constants may move an answer
SEED = 11
TABLE_WIDTH = 110  # columns where the output is not a terminal


def problems(charts: Sequence[Chart], rows: Sequence[Figures]) -> list[str]:
    """Return a sentence for each thing that must not be."""
    found = []
    for row in rows:
        wrong = sum(a.kind != b.kind for a, b in zip(row.readings, charts, strict=True))
        if wrong:
            found.append(f"{row.mode}: {wrong} of {len(charts)} charts went to other readers")
        if row.growth > ALLOWED_GROWTH:
            found.append(f"{row.mode}: {row.growth / MB:.1f} MB more after {len(charts)} charts")
    first, *others = rows
    for row in others:
        for number, (one, other) in enumerate(zip(first.readings, row.readings, strict=True)):
            names = one.found.keys() & other.found.keys()
            if any(abs(one.found[name] - other.found[name]) > SAME for name in names):
                found.append(f"chart {number} got another answer {row.mode} than {first.mode}")
    return found


def errors(charts: Sequence[Chart], row: Figures) -> dict[str, float]:
    """Return each reader's mean error over the charts that it read."""
    found: dict[str, list[float]] = {}
    for chart, reading in zip(charts, row.readings, strict=True):
        for name, value in reading.found.items():
            kind, truth, _ = READERS[name]
            if kind == chart.kind:
                found.setdefault(name, []).append(abs(value - chart.truth[truth]))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _run(count: int, *, small: bool) -> tuple[list[Chart], list[Figures]]:
    random = np.random.default_rng(SEED)
    charts = [draw(KINDS[n % len(KINDS)], random) for n in range(count)]
    with tempfile.TemporaryDirectory(prefix="modelsup-chart-pipeline-") as name:
        folder = Path(name)
        with step("Make a classifier and four readers"):
            make_elsewhere(folder, small=small)
        with (
            local_supervisor("--preload", "tensorflow") as supervisor,
            Client(supervisor.url) as client,
        ):
            pipeline = Pipeline(client, folder)
            for reader in READERS:
                with step(f"Prepare {reader}"):
                    client.prepare(reader)
            rows = []
            for mode in MODES:
                with step(f"Read {count} charts, readers {mode.name}"):
                    rows.append(measure(mode, supervisor, client, pipeline, charts))
    return charts, rows


def _print(charts: Sequence[Chart], rows: Sequence[Figures]) -> None:
    table = Table(title=f"{len(charts)} charts, each with readers that were not asked just before")
    for column in ("readers are", "answer ms p50", "p95"):
        table.add_column(column, justify="left" if column == "readers are" else "right")
    for column in ("RAM idle MB", "peak", "GPU idle MB", "peak", "growth MB"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.mode,
            *(f"{seconds * 1000:.0f}" for seconds in (row.p50, row.p95)),
            *(f"{size / MB:.0f}" for size in (row.ram_idle, row.ram_peak)),
            *("-" if size is None else f"{size / MB:.0f}" for size in (row.gpu_idle, row.gpu_peak)),
            f"{row.growth / MB:+.1f}",
        )
    console = Console(width=None if sys.stdout.isatty() else TABLE_WIDTH, highlight=False)
    console.print(table)
    told = ", ".join(f"{name} {error:.3f}" for name, error in errors(charts, rows[0]).items())
    console.print(f"Mean errors of the readers: {told}.")


def _as_json(charts: Sequence[Chart], rows: Sequence[Figures]) -> str:
    data = {
        "charts": len(charts),
        "machine": machine(),
        "versions": versions(),
        "errors": errors(charts, rows[0]),
        "modes": [asdict(row) for row in rows],
    }
    return json.dumps(data, indent=2)


@click.command()
@click.option(
    "--charts",
    type=click.IntRange(len(KINDS), 10_000),
    default=60,
    show_default=True,
    help="How many to read in each mode.",
)
@click.option("--small", is_flag=True, help="Small readers, for a quick run.")
@click.option("--json", "as_json", is_flag=True, help="JSON in place of a table.")
def main(charts: int, small: bool, as_json: bool) -> None:
    """Read charts with readers in a file, in RAM and loaded, and compare."""
    end_on_sigterm()
    try:
        drawn, rows = _run(charts, small=small)
    except subprocess.CalledProcessError as error:
        raise click.ClickException(
            f"the models could not be made: {error.stdout.strip()[-2000:]}"
        ) from error
    except (StartError, ModelsupError) as error:
        raise click.ClickException(str(error)) from error
    if as_json:
        click.echo(_as_json(drawn, rows))
    else:
        _print(drawn, rows)
    found = problems(drawn, rows)
    for sentence in found:
        click.echo(f"error: {sentence}", err=True)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
