"""`modelsup swap`: give a client another model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import (
    client_argument,
    duration,
    json_option,
    load_options,
    model_argument,
    wait_option,
)
from ..progress import loading
from ..receipts import previous_text

if TYPE_CHECKING:
    from modelsup.client import Options


@click.command(short_help="Change a client's current model.")
@client_argument
@model_argument
@click.argument("source", type=click.Path(), required=False)
@load_options
@click.option("--private", is_flag=True, help="A worker that no other client shares.")
@click.option("--lease-ttl", type=duration, help="How long the client's lease lives unused.")
@wait_option
@json_option
@pass_context
def swap(
    context: Context,
    client_id: str,
    name: str,
    source: str | None,
    *,
    runtime: str | None,
    options: Options,
    private: bool,
    lease_ttl: float | None,
    wait: float,
    as_json: bool,
) -> None:
    """Make NAME the current model of CLIENT; no other client notices.

    Returns when NAME is ready and the client's previous model, if nobody else needs it, is gone.
    """
    with context.client() as client, loading(context, name):
        done = client.swap(
            client_id,
            name,
            source,
            runtime=runtime,
            private=private,
            lease_ttl=lease_ttl,
            wait=wait,
            **options,
        )
    if as_json:
        output.print_json(done)
        return
    took = f" in {output.seconds(done.seconds['total'])}" if "total" in done.seconds else ""
    click.echo(f"{done.client} has {done.model}{took}: worker {done.worker}")
    for line in previous_text(done.previous, done.receipt, done.kept):
        click.echo(line)
