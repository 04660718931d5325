"""`modelsup cache`: the prepared models on the disk."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import complete_forms, json_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelsup.client import Form


@click.group()
def cache() -> None:
    """Look at the prepared models, or remove some."""


@cache.command()
@json_option
@pass_context
def ls(context: Context, *, as_json: bool) -> None:
    """List the prepared models, the one used last first."""
    with context.client() as client:
        forms = client.cache()
    if as_json:
        output.print_json(forms)
        return
    output.print_table(
        ("NAME", "MODEL", "SIZE", "DEVICE", "FRAMEWORK", "LAST USED", "SOURCE"),
        [
            (
                form.name,
                form.model,
                output.size(form.bytes) if not form.refused else "-",
                form.device,
                form.framework,
                f"{datetime.fromtimestamp(form.used_at):%Y-%m-%d %H:%M:%S}",
                form.source or "-",
            )
            for form in forms
        ],
    )
    for form in forms:
        if form.refused:
            output.say(f"{form.model} has no prepared form: {form.refused}")


@cache.command()
@click.argument("names", nargs=-1, metavar="NAME...", shell_complete=complete_forms)
@click.option("--all", "everything", is_flag=True, help="Remove all of them.")
@json_option
@pass_context
def rm(context: Context, names: Sequence[str], *, everything: bool, as_json: bool) -> None:
    """Remove prepared models; workers that have one loaded keep it."""
    if everything == bool(names):
        raise click.UsageError("Give the names that `modelsup cache ls` prints, or --all.")
    removed: list[Form] = []
    with context.client() as client:
        if everything:
            removed = client.clear_cache()
        for name in names:
            removed.append(client.remove_form(name))
    if as_json:
        output.print_json(removed)
    else:
        size = output.size(sum(form.bytes for form in removed))
        click.echo(f"removed {len(removed)}, {size}")
