"""`modelsup profile`: what a model takes, stage by stage and instance by instance."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import complete_models, json_option, wait_option

if TYPE_CHECKING:
    from modelsup.client import Client, Options

    from ..profile.measure import Subject
    from ..profile.results import Measured, Pool, Profile

# What shapes the memory of a model; what only rules its life, such as a pin, stays out.
_KEPT = ("device", "threads", "gpu_memory", "gpu_memory_fraction")


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
@click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    metavar="FILE",
    help="Write a page with plots too. Needs the extra modelsup[plots].",
)
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

    _check_page(html)
    with context.client() as client:
        given: Options = {"warm_up_batch": batch}
        if device is not None:
            given["device"] = device
        if threads is not None:
            given["threads"] = threads
        subject = _subject(client, model, runtime, given, wait)
        measured = _measure(client, subject, instances)
        beside = _pool(client, measured, subject) if pool else _none("--no-pool was given")
    advice = recommend(measured.most_bytes, measured.budget_bytes, measured.gpu)
    made = Profile(model, measured, beside, advice)
    if html is not None:
        _write_page(html, made)
    if as_json:
        output.print_json(dataclasses.asdict(made))
    else:
        _print(made)


def _check_page(html: Path | None) -> None:
    """Refuse before the measuring what would fail after it."""
    if html is None:
        return
    if importlib.util.find_spec("plotly") is None:
        raise click.UsageError(
            "--html needs plotly. Install it: pip install 'modelsup[plots]', or leave out --html."
        )
    if not html.absolute().parent.is_dir():
        raise click.UsageError(f"--html: there is no folder {html.absolute().parent}.")


def _subject(
    client: Client, model: str, runtime: str | None, given: Options, wait: float
) -> Subject:
    """Return the model of that name in the catalogue, else the source at that path."""
    from modelsup.client import InvalidRequest, UnknownModel

    from ..profile.measure import Subject

    try:
        known = client.model(model)
    except (UnknownModel, InvalidRequest):
        if client.local and not Path(model).exists():
            raise UnknownModel(
                f"{model} is neither a model that the supervisor knows nor a file or folder here; "
                "`modelsup models` lists those it knows",
                code="unknown_model",
                model=model,
            ) from None
        source = str(Path(model).absolute()) if Path(model).exists() else model
        return Subject.make(source, runtime, given, wait)
    kept = {key: known.options[key] for key in _KEPT if known.options.get(key) is not None}
    options: Options = {**kept, **given}  # type: ignore[typeddict-item]  # the names are in _KEPT
    return Subject.make(known.source, runtime or known.runtime, options, wait)


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


def _write_page(path: Path, made: Profile) -> None:
    from ..profile.page import render

    try:
        path.write_text(render(made), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}") from error
    output.say(f"wrote {path}")


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
