"""`modelsup config`: the settings that `modelsup start` would use, and where they come from."""

from __future__ import annotations

import os
from pathlib import Path

import click

from .. import output
from ..parameters import json_option


@click.group()
def config() -> None:
    """Look at the settings of the supervisor."""


@config.command()
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="Read this file of settings."
)
@json_option
def show(config_path: Path | None, *, as_json: bool) -> None:
    """Print each setting, its value, and where that came from."""
    from modelsup.supervisor.settings import FIELDS, SettingsError, load_settings

    try:
        settings = load_settings({}, os.environ, config_path)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    values = {field.name: getattr(settings, field.name) for field in FIELDS}
    if as_json:
        output.print_json(
            {
                name: {"value": value, "source": settings.sources[name]}
                for name, value in values.items()
            }
        )
        return
    output.print_table(
        ("SETTING", "VALUE", "SOURCE"),
        [(name, _text(value), settings.sources[name]) for name, value in values.items()],
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return output.listed(value)
    return "-" if value is None else str(value)
