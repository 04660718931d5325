"""The command group, and how each way to end becomes an exit code."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from .commands import (
    bench,
    cache,
    clients,
    completion,
    config,
    events,
    load,
    logs,
    models,
    plan,
    predict,
    prepare,
    profile,
    ps,
    release,
    scale,
    start,
    status,
    stop,
    swap,
    top,
    unload,
)
from .context import Context
from .exits import Exit, exit_of
from .output import say, say_error

if TYPE_CHECKING:
    from collections.abc import Sequence


class _Group(click.Group):
    """Lists the commands as they are added, and does not mind a reader that goes away."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()
            return Exit.DONE
        return result


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--url",
    envvar="MODELSUP_URL",
    default="http://127.0.0.1:8501",
    show_default=True,
    show_envvar=True,
    help="Where the supervisor is.",
)
@click.version_option(package_name="modelsup", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context, url: str) -> None:
    """Run every loaded ML model in a process of its own, and get the memory back on unload.

    Exit codes: 0 done, 1 failed, 2 usage, 3 supervisor not reachable, 4 no such model or client,
    5 does not fit, 6 load failed, 7 timed out, 130 interrupted.
    """
    ctx.obj = Context(url)


for _command in (
    start.start,
    status.status,
    stop.stop,
    load.load,
    plan.plan,
    profile.profile,
    bench.bench,
    prepare.prepare,
    cache.cache,
    scale.scale,
    unload.unload,
    swap.swap,
    release.release,
    predict.predict,
    ps.ps,
    top.top,
    models.models,
    clients.clients,
    logs.logs,
    events.events,
    config.config,
    completion.completion,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; `arguments` default to those of the process."""
    try:
        result = cli.main(arguments, prog_name="modelsup", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        return Exit.INTERRUPTED
    except Exception as error:
        return _told(error)
    return result if isinstance(result, int) else Exit.DONE


def _told(error: Exception) -> Exit:
    from modelsup.client import ModelsupError

    if not isinstance(error, ModelsupError):
        raise error
    say_error(error)
    return exit_of(error)


def _drop_output() -> None:
    """Let what is still buffered go nowhere: the interpreter flushes stdout once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
