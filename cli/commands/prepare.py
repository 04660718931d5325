"""`modelsup prepare`: make the form of a model that loads faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import duration, json_option, load_options, model_argument
from ..progress import preparing

if TYPE_CHECKING:
    from modelsup.client import Options


@click.command(short_help="Make the form of a model that loads faster.")
@model_argument
@click.argument("source", type=click.Path(), required=False)
@load_options
@click.option(
    "--wait",
    type=duration,
    default="15m",
    show_default=True,
    help="Longest wait. The work goes on after that.",
)
@json_option
@pass_context
def prepare(
    context: Context,
    name: str,
    source: str | None,
    *,
    runtime: str | None,
    options: Options,
    wait: float,
    as_json: bool,
) -> None:
    """Make the prepared form of model NAME and keep it in the cache. Nothing is loaded.

    The supervisor does this by itself after the first load of a model, unless its setting
    `prepare` says otherwise. A model that cannot be prepared is told with the reason; it loads
    from SOURCE as before.
    """
    with context.client() as client, preparing(context, name):
        prepared = client.prepare(name, source, runtime=runtime, wait=wait, **options)
    if as_json:
        output.print_json(prepared)
    else:
        click.echo(f"{name} is prepared: {output.size(prepared.bytes)} as {prepared.form}")
