"""The command line as the reference shows it: with the flags that commands make when asked.

sphinx-click reads the list `params`; `modelsup start` makes its flags from the settings, later.
"""

from __future__ import annotations

import copy

import click
from modelsup.cli.main import cli as real_cli


def complete(command: click.Command) -> click.Command:
    """Return a command that lists all of its flags, and so do the commands below it."""
    if isinstance(command, click.Group):
        group = copy.copy(command)
        group.commands = {name: complete(below) for name, below in command.commands.items()}
        return group
    made = command.get_params(click.Context(command))
    return click.Command(
        command.name,
        params=[parameter for parameter in made if "--help" not in parameter.opts],
        help=command.help,
        short_help=command.short_help,
    )


cli = complete(real_cli)
