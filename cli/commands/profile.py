"""`modelsup profile`: what a model takes, stage by stage and instance by instance."""

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

    from modelsup.client import Client, Options

    from ..profile.results import Measured, Pool, Profile
    from ..subjects import Subject


def counts(text: str) -> tuple[int, ...]:
    """Read a list such as "1,2,4", in rising order. Raises BadParameter."""
    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or found[0] < 1:
        raise click.BadParameter(f"{text!r} is not a list of numbers from 1 on; write 1,2,4.")
    return tuple(found)


@click.command(short_help="Measure the memory of a model, and say what to give it.")
@click.argument("model", metavar="NAME|SOURCE", shell_complete=complete_models)
@click.option(
    "--instances",
    type=counts,
    default="1,2,4,8",
    show_default=True,
    metavar="N,N,...",
    help="How many instances at a time.",
)
@click.option("--runtime", help="What loads the model: tensorflow, echo.", metavar="NAME")
@click.option("--device", metavar="DEVICE", help="gpu:0, gpu:1, ... or cpu.")
@click.option("--threads", type=click.IntRange(1), help="Most threads that one operation may use.")
@click.option(
    "--pool/--no-pool",
    default=True,
    show_default=True,
    help="Measure one process for all instances beside it.",
)
@click.option(
    "--batch",
    type=click.IntRange(1),
    default=8,
    show_default=True,
    metavar="ROWS",
    help="Rows of the largest call; requests that come together are served as one batch.",
)
@wait_option
@html_option
@json_option
@pass_context
def profile(
    context: Context,
    model: str,
    *,
    instances: tuple[int, ...],
    runtime: str | None,
    device: str | None,
    threads: int | None,
    pool: bool,
    batch: int,
    wait: float,
    html: Path | None,
    as_json: bool,
) -> None:
    """Measure what a model takes, and say what to give it.

    Loads it several times as private workers, under a temporary name, measures each stage and
    each number of instances, and releases everything. Beside it, one process that holds all
    instances is measured in the same way. It stops before others would have to make room.
    """
    from ..profile.recommend import recommend
    from ..profile.results import Profile

    check(html)
    with context.client() as client:
        given: Options = {"warm_up_batch": batch}
        if device is not None:
            given["device"] = device
        if threads is not None:
            given["threads"] = threads
        subject = find_subject(client, "profile", model, runtime, given, wait)
        measured = _measure(client, subject, instances)
        beside = _pool(client, measured, subject) if pool else _none("--no-pool was given")
    advice = recommend(measured.most_bytes, measured.budget_bytes, measured.gpu)
    made = Profile(model, measured, beside, advice)
    if html is not None:
        from ..profile.page import render

        write(html, render(made))
    if as_json:
        output.print_json(dataclasses.asdict(made))
    else:
        _print(made)


def _measure(client: Client, subject: Subject, instances: tuple[int, ...]) -> Measured:
    from ..profile.measure import measure

    return measure(client, subject, instances, output.say)


def _pool(client: Client, measured: Measured, subject: Subject) -> Pool:
    """Measure the pool with the counts that fitted, where this machine has the model."""
    from ..profile.pool import run_pool

    if not client.local:
        return _none("the supervisor is on another machine")
    done = [row.instances for row in measured.rows]
    if not done:
        return _none("no count of instances fitted")
    output.say(f"measuring one process with {', '.join(map(str, done))} instances")
    threads = subject.options.get("threads")
    return run_pool(measured.source, measured.runtime, done, measured.batch, threads)


def _none(reason: str) -> Pool:
    from ..profile.results import Pool

    return Pool(reason=reason)


def _print(made: Profile) -> None:
    from ..profile import report

    click.echo(report.headline(made))
    for table in (report.stages(made), report.instances(made)):
        click.echo(f"\n{table.title}")
        output.print_table(table.headers, table.rows)
        for note in table.notes:
            click.echo(f"  {note}")
    click.echo("\nRecommended")
    for line in report.recommendation(made):
        click.echo(f"  {line}")
