"""`modelsup release`: end a client's lease."""

from __future__ import annotations

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import client_argument, json_option
from ..receipts import previous_text


@click.command(short_help="End a client's lease.")
@client_argument
@json_option
@pass_context
def release(context: Context, client_id: str, *, as_json: bool) -> None:
    """End the lease of CLIENT; its model is unloaded if nobody else needs it."""
    with context.client() as client:
        released = client.release(client_id)
    if as_json:
        output.print_json(released)
        return
    click.echo(f"{released.client} released {released.model}")
    for line in previous_text(released.model, released.receipt, released.kept):
        click.echo(line)
