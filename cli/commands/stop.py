"""`modelsup stop`: end the supervisor and wait until it is gone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click

from .. import output
from ..context import Context, pass_context
from ..exits import Exit
from ..parameters import duration, json_option

if TYPE_CHECKING:
    import psutil
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
    with context.client() as client:
        found = client.status()
        process = _process(found) if client.local else None
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


def _process(found: Status) -> psutil.Process | None:
    """Return the supervisor's process, if it can be seen from here.

    Behind a published port of a container the pid is that of another process; the time of its
    start tells them apart.
    """
    import psutil

    try:
        process = psutil.Process(found.pid)
        age = found.started_at - process.create_time()
    except psutil.Error:
        return None
    return process if -1.0 < age < _START_SLACK_SECONDS else None


def _wait(context: Context, process: psutil.Process | None, deadline: float) -> bool:
    """Wait until the process is gone and nothing answers; return whether that came in time."""
    if process is not None:
        import psutil

        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except psutil.TimeoutExpired:
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
