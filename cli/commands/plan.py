"""`modelsup plan`: what a load would do, before anybody does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from .. import output
from ..context import Context, pass_context
from ..exits import Exit
from ..parameters import json_option, model_argument

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelsup.client import Plan

_HEADLINES: Final = {
    "now": "fits now",
    "after eviction": "fits once others have been unloaded",
    "after waiting": "fits once what is in the way has passed",
    "no": "does not fit",
}


@click.command(short_help="Say whether a model fits, and what would go for it.")
@model_argument
@json_option
@pass_context
def plan(context: Context, name: str, *, as_json: bool) -> Exit:
    """Say what a load of model NAME would do now, without doing it.

    The exit code is 0 if the model fits, now or after eviction or waiting, and 5 if it does not.
    """
    with context.client() as client:
        found = client.plan(name)
    if as_json:
        output.print_json(found)
    else:
        for line in _lines(found):
            click.echo(line)
    return Exit.DOES_NOT_FIT if found.fits == "no" else Exit.DONE


def _lines(plan: Plan) -> Iterator[str]:
    headline = f"{plan.model} {_HEADLINES.get(plan.fits, plan.fits)}"
    yield f"{headline}: {plan.reason}" if plan.reason else headline
    for victim in plan.victims:
        yield f"  unloads {victim.model} ({victim.worker}): {victim.reason}"
    for blocker in plan.blockers:
        verb = "waits for" if blocker.passing else "in the way:"
        yield f"  {verb} {blocker.model} ({blocker.worker}), which {blocker.reason}"
    yield f"  device: {plan.device or 'cpu'}"
    if plan.charges:
        sizes = ", ".join(f"{output.size(n)} of {name}" for name, n in plan.charges.items())
        how = "estimated from the size of its files" if plan.estimated else "as measured or asked"
        yield f"  memory: {sizes} ({how})"
    if plan.seconds is not None:
        yield f"  load time: {output.seconds(plan.seconds)}, the last time"
