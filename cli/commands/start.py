"""`modelsup start`: run the supervisor here, or in the background."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import output
from ..detach import announce, ready_text, start_detached
from ..exits import Exit
from ..parameters import json_option

if TYPE_CHECKING:
    from modelsup.supervisor.settings import Field


class _StartCommand(click.Command):
    """Has one flag for each setting; the settings are imported when the flags are needed."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from modelsup.supervisor.settings import FIELDS

        return [*(_flag(field) for field in FIELDS), *super().get_params(ctx)]


def _flag(field: Field) -> click.Option:
    """Return the flag of a setting. Its text goes to the settings as it is, to be checked there."""
    if field.type == "boolean":
        flags = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
        return click.Option([flags], default=None, help=field.help)
    metavar = "|".join(field.choices) if field.choices else field.type.upper()
    return click.Option([field.flag], metavar=metavar, help=field.help)


@click.command(cls=_StartCommand, short_help="Start the supervisor, here or in the background.")
@click.option(
    "--config", "config_path", type=click.Path(path_type=Path), help="Read this file of settings."
)
@click.option("--detach", is_flag=True, help="Run in the background; return when it is ready.")
@click.option("--ready-fd", type=int, hidden=True)
@json_option
def start(
    *,
    config_path: Path | None,
    detach: bool,
    ready_fd: int | None,
    as_json: bool,
    **flags: str | bool | None,
) -> int:
    """Start the supervisor. Without --detach it runs here until Ctrl-C or `modelsup stop`.

    Each flag has a MODELSUP_* variable and a line in the file of settings; `modelsup config show`
    prints them all.
    """
    from modelsup.supervisor.settings import SettingsError, load_settings

    given = {name: _text(value) for name, value in flags.items() if value is not None}
    try:
        settings = load_settings(given, os.environ, config_path)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    if not detach:
        return _run(settings, ready_fd)
    arguments = [_argument(name, value) for name, value in flags.items() if value is not None]
    started = start_detached(arguments, config_path, settings.state_dir / "supervisor.log")
    if as_json:
        output.print_json(started)
    else:
        click.echo(ready_text(started["url"], started["grpc"], started["pid"]))
    return Exit.DONE


def _argument(name: str, value: str | bool) -> str:
    """Return the flag as it was given, for the process in the background."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag}={value}"


def _text(value: str | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else value


def _run(settings: Any, ready_fd: int | None) -> int:
    from modelsup.supervisor.daemon import StartError, run

    try:
        return run(settings, on_ready=lambda url, grpc: announce(url, grpc, ready_fd))
    except StartError as error:
        raise click.ClickException(str(error)) from error
