"""`modelsup stop`: end the supervisor and wait until it is gone."""

from __future__ import annotations

import contextlib
import os
import select
import time
from typing import TYPE_CHECKING, Final

import click

from .. import output
from ..context import Context, pass_context
from ..exits import Exit
from ..parameters import duration, json_option

if TYPE_CHECKING:
    from modelsup.client import Client, Status

_POLL_SECONDS: Final = 0.05
# A process is older than the moment at which it says that it started, but not by much.
_START_SLACK_SECONDS: Final = 60.0


@click.command()
@click.option(
    "--timeout", type=duration, default="60s", show_default=True, help="Longest wait for its end."
)
@json_option
@pass_context
def stop(context: Context, *, timeout: float, as_json: bool) -> int:
    """Stop the supervisor and wait until it and its workers are gone."""
    deadline = time.monotonic() + timeout
    with context.client() as client, contextlib.ExitStack() as held:
        found = client.status()
        process = _process(found) if client.local else None
        if process is not None:
            held.callback(os.close, process)
        stopping = client.stop()
        gone = _wait(context, process, deadline)
    if as_json:
        output.print_json({"pid": stopping.pid, "stopped": gone})
    elif gone:
        click.echo(f"the supervisor at {context.url} (pid {stopping.pid}) has stopped")
    if gone:
        return Exit.DONE
    output.say(
        f"the supervisor at {context.url} (pid {stopping.pid}) is still stopping after "
        f"{output.seconds(timeout)}"
    )
    return Exit.TIMED_OUT


def _process(found: Status) -> int | None:
    """Return a pidfd of the supervisor, if its process can be seen from here.

    Behind a published port of a container the pid is that of another process; the time of its
    start tells them apart.
    """
    import psutil

    try:
        process = os.pidfd_open(found.pid)
    except OSError:
        return None
    with contextlib.suppress(psutil.Error):
        age = found.started_at - psutil.Process(found.pid).create_time()
        if -1.0 < age < _START_SLACK_SECONDS:
            return process
    os.close(process)
    return None


def _wait(context: Context, process: int | None, deadline: float) -> bool:
    """Wait until the process has ended and nothing answers; return whether that came in time."""
    if process is not None:
        # A pidfd also tells of an end that nobody has collected yet.
        ended, _, _ = select.select([process], [], [], max(0.0, deadline - time.monotonic()))
        if not ended:
            return False
    with context.client(timeout=1.0) as client:
        while _answers(client):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
    return True


def _answers(client: Client) -> bool:
    from modelsup.client import ModelsupError, Unreachable

    try:
        client.status()
    except Unreachable:
        return False
    except ModelsupError:
        return True  # it is stopping, and says so
    return True
