"""`modelsup models`: the catalogue."""

from __future__ import annotations

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option


@click.command()
@json_option
@pass_context
def models(context: Context, *, as_json: bool) -> None:
    """List the models that the supervisor knows, loaded or not."""
    with context.client() as client:
        known = client.models()
    if as_json:
        output.print_json(known)
        return
    output.print_table(
        (
            "MODEL",
            "STATE",
            "READY",
            "VERSION",
            "RUNTIME",
            "CLIENTS",
            "PINNED",
            "PREPARED",
            "RESIDENCY",
            "SOURCE",
        ),
        [
            (
                model.name,
                model.state,
                f"{model.ready}/{model.replicas}",
                model.version or output.listed(model.versions),
                model.runtime or "-",
                output.listed(model.clients),
                "yes" if model.pinned else "-",
                model.prepared.state if model.prepared.state != "none" else "-",
                model.residency,
                model.source or "-",
            )
            for model in known
        ],
    )
    for model in known:
        if model.failure is not None:
            what = f"a replica of {model.name}" if model.ready else model.name
            output.say(f"{what} failed: {model.failure.message} ({model.failure.cause})")
        if model.prepared.reason:
            output.say(f"{model.name} is not prepared: {model.prepared.reason}")
