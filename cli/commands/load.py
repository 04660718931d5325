"""`modelsup load`: start a worker and wait until its model is ready."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option, load_options, model_argument, wait_option
from ..progress import loading

if TYPE_CHECKING:
    from modelsup.client import Loaded, Options


@click.command()
@model_argument
@click.argument("source", type=click.Path(), required=False)
@load_options
@wait_option
@click.option("--no-wait", is_flag=True, help="Return at once; the load goes on.")
@json_option
@pass_context
def load(
    context: Context,
    name: str,
    source: str | None,
    *,
    runtime: str | None,
    options: Options,
    wait: float,
    no_wait: bool,
    as_json: bool,
) -> None:
    """Load model NAME and wait until it is ready.

    SOURCE is a .keras or .h5 file, a SavedModel folder, or a folder of versions 1/ 2/ ...; it may
    be left out for a model that the supervisor knows.
    """
    with context.client() as client:
        if no_wait:
            loaded = client.load(name, source, runtime=runtime, wait=0, **options)
        else:
            with loading(context, name):
                loaded = client.load(name, source, runtime=runtime, wait=wait, **options)
    for warning in loaded.warnings:
        output.say(f"warning: {warning}")
    if as_json:
        output.print_json(loaded)
    else:
        click.echo(_text(loaded))


def _text(loaded: Loaded) -> str:
    if loaded.worker is None:
        return f"{loaded.model} is {loaded.state}; `modelsup models` shows when it is ready"
    several = len(loaded.workers) > 1
    parts = [f"{len(loaded.workers)} workers" if several else f"worker {loaded.worker}"]
    parts.append(f"version {loaded.version}")
    if loaded.already_loaded:
        parts.append("it was already loaded")
    elif "total" in loaded.seconds:
        parts.append(f"loaded in {output.seconds(loaded.seconds['total'])}")
    if loaded.memory is not None:
        parts.append(f"{output.size(loaded.memory.host_bytes)} host memory")
        if loaded.memory.gpu_bytes:
            parts.append(f"{output.size(sum(loaded.memory.gpu_bytes.values()))} GPU memory")
    return f"{loaded.model} is {loaded.state}: {', '.join(parts)}"
