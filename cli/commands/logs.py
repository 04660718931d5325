"""`modelsup logs`: what a model's workers wrote."""

from __future__ import annotations

import click

from ..context import Context, pass_context
from ..output import say
from ..parameters import model_argument


@click.command(short_help="Print what a model's workers wrote.")
@model_argument
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines as they come.")
@click.option(
    "-n", "--tail", type=click.IntRange(0), default=100, show_default=True, help="Last lines first."
)
@pass_context
def logs(context: Context, name: str, *, follow: bool, tail: int) -> None:
    """Print what the workers of model NAME wrote to stdout and stderr."""
    empty = tail > 0
    with context.client() as client:
        for line in client.logs(name, tail=tail, follow=follow):
            click.echo(line)
            empty = False
    if empty:
        say(f"{name} has written nothing so far")
