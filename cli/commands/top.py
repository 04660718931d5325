"""`modelsup top`: memory, workers, leases and queue, as they change."""

from __future__ import annotations

import dataclasses
import sys
import time
from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import duration, json_option
from ..top import lines, look

if TYPE_CHECKING:
    from modelsup.client import Client


@click.command(short_help="Watch memory, workers and leases.")
@click.option("--once", is_flag=True, help="Print what is there now, and end.")
@click.option(
    "--interval", type=duration, default="1s", show_default=True, help="Time between two looks."
)
@json_option
@pass_context
def top(context: Context, *, once: bool, interval: float, as_json: bool) -> None:
    """Show the memory of the host and of each GPU, the workers, the leases and the queue.

    On a terminal the picture is renewed until Ctrl-C; elsewhere it is printed once.
    """
    with context.client() as client:
        if as_json:
            found = look(client)
            output.print_json(
                {field.name: getattr(found, field.name) for field in dataclasses.fields(found)}
            )
        elif once or not sys.stdout.isatty():
            for line in lines(look(client)):
                click.echo(line)
        else:
            _watch(client, interval)


def _watch(client: Client, interval: float) -> None:
    from rich.live import Live
    from rich.text import Text

    def picture() -> Text:
        text = "\n".join(lines(look(client)))
        return Text.from_ansi(text, no_wrap=True, overflow="ellipsis")

    try:
        with Live(picture(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(picture(), refresh=True)
    except KeyboardInterrupt:
        pass  # the way to end it
