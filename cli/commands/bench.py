"""`modelsup bench`: measurements that help to choose options."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..pages import check, html_option, write
from ..parameters import complete_models, json_option, wait_option
from ..subjects import find_subject

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


@click.group(short_help="Measure what a choice of options costs.")
def bench() -> None:
    """Measure what a choice of options costs, with models of yours."""


@bench.command(short_help="Compare models kept on the disk, in RAM, and loaded.")
@click.argument(
    "models", metavar="NAME|SOURCE...", nargs=-1, required=True, shell_complete=complete_models
)
@click.option("--runtime", help="What loads the models: tensorflow, echo.", metavar="NAME")
@click.option(
    "--rounds", type=click.IntRange(1, 1000), default=5, show_default=True, help="How many answers."
)
@click.option(
    "--body",
    type=click.File("rb"),
    metavar="FILE",
    help="A TensorFlow Serving request as JSON; else inputs of ones in the smallest shape.",
)
@wait_option
@html_option
@json_option
@pass_context
def residency(
    context: Context,
    models: tuple[str, ...],
    *,
    runtime: str | None,
    rounds: int,
    body: BinaryIO | None,
    wait: float,
    html: Path | None,
    as_json: bool,
) -> None:
    """Compare what models cost that are kept on the disk, in RAM, or loaded.

    Each is loaded under a temporary name, rests at each place, and is asked. The time to the
    answer, and the memory at rest and at the peak, say which `--keep` to choose. Everything is
    released at the end; prepared forms that this makes stay in the cache.
    """
    from ..residency import report
    from ..residency.measure import measure
    from ..residency.results import Bench

    check(html)
    question = body.read() if body is not None else None
    rows, notes = [], []
    with context.client() as client:
        for model in models:
            subject = find_subject(client, "bench", model, runtime, {}, wait)
            found, told = measure(client, model, subject, question, rounds, output.say)
            rows += found
            notes += told
    made = Bench(rounds, tuple(rows), tuple(notes))
    if html is not None:
        from ..residency.page import render

        write(html, render(made))
    if as_json:
        output.print_json(dataclasses.asdict(made))
        return
    table = report.table(made)
    output.print_table(table.headers, table.rows)
    for note in table.notes:
        click.echo(f"  {note}")
