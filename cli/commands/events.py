"""`modelsup events`: what happened to workers, leases and memory, and why."""

from __future__ import annotations

import dataclasses
import json
import time
from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context

if TYPE_CHECKING:
    from modelsup.client import Event

_COLOURS = {"alarm": "red", "restart": "red", "eviction": "yellow", "queue": "yellow"}


@click.command(short_help="Print what happened, and why.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events as they come.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line for each event.")
@pass_context
def events(context: Context, *, follow: bool, as_json: bool) -> None:
    """Print the last events: moves of workers, evictions, leases, refusals, restarts."""
    with context.client() as client:
        for event in client.events(follow=follow):
            click.echo(json.dumps(dataclasses.asdict(event)) if as_json else _line(event))


def _line(event: Event) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(event.at))
    facts = " ".join(f"{name}={_text(value)}" for name, value in event.facts.items())
    return f"{at} {output.paint(event.message, _COLOURS.get(event.kind))}  {facts}".rstrip()


def _text(value: object) -> str:
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return json.dumps(text) if " " in text else text
