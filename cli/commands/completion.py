"""`modelsup completion`: the script that makes a shell complete commands, models and clients."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script for SHELL.

    For bash: eval "$(modelsup completion bash)" in ~/.bashrc.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows every shell of the choice"
    click.echo(kind(ctx.find_root().command, {}, "modelsup", "_MODELSUP_COMPLETE").source())
