"""`modelsup scale`: change how many workers serve a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option, model_argument, wait_option
from ..progress import loading
from ..receipts import receipt_text

if TYPE_CHECKING:
    from modelsup.client import Scaled


@click.command()
@model_argument
@click.argument("replicas", type=click.IntRange(1, 64))
@wait_option
@json_option
@pass_context
def scale(context: Context, name: str, replicas: int, *, wait: float, as_json: bool) -> None:
    """Let REPLICAS workers serve model NAME side by side.

    New ones start while the others serve. Those that are too many first answer the requests that
    they have. A model that is not loaded has the number once it is.
    """
    with context.client() as client, loading(context, name):
        scaled = client.scale(name, replicas, wait=wait)
    if as_json:
        output.print_json(scaled)
    else:
        click.echo(_text(scaled))


def _text(scaled: Scaled) -> str:
    count = len(scaled.workers)
    if not count:
        return f"{scaled.model} is not loaded; it will have {scaled.replicas} workers"
    text = f"{scaled.model} has {count} worker{'s' * (count > 1)}"
    return text if scaled.receipt is None else f"{text}; {receipt_text(scaled.receipt)}"
