"""`modelsup unload`: end a model's worker and say what that gave back."""

from __future__ import annotations

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import duration, json_option, model_argument
from ..receipts import receipt_text


@click.command(short_help="Unload a model and say what that freed.")
@model_argument
@click.option("--force", is_flag=True, help="End running predictions; override clients' leases.")
@click.option("--timeout", type=duration, help="Time for running predictions to end.")
@json_option
@pass_context
def unload(
    context: Context, name: str, *, force: bool, timeout: float | None, as_json: bool
) -> None:
    """Unload model NAME and print the receipt: what was freed, how fast, and whether verified."""
    with context.client() as client:
        receipt = client.unload(name, force=force, timeout=timeout)
    if as_json:
        output.print_json(receipt)
    else:
        click.echo(receipt_text(receipt))
