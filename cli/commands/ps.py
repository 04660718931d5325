"""`modelsup ps`: the workers, one process each."""

from __future__ import annotations

import time

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option
from ..workers import charged


@click.command()
@json_option
@pass_context
def ps(context: Context, *, as_json: bool) -> None:
    """List the workers: the processes of the loaded models.

    MEMORY is what a worker uses now, CHARGED what the memory budget counts for it.
    """
    with context.client() as client:
        workers = client.workers()
    if as_json:
        output.print_json(workers)
        return
    now = time.time()
    output.print_table(
        (
            "MODEL",
            "REPLICA",
            "WORKER",
            "VERSION",
            "STATE",
            "PID",
            "DEVICE",
            "MEMORY",
            "GUARD",
            "CHARGED",
            "IN FLIGHT",
            "REQUESTS",
            "RESTARTS",
            "USED",
            "CLIENTS",
        ),
        [
            (
                worker.model,
                str(worker.replica),
                worker.id,
                worker.version or "-",
                worker.state,
                str(worker.pid or "-"),
                worker.device or "cpu",
                output.size(worker.memory.pss_bytes if worker.memory else None),
                worker.guard or "-",
                charged(worker),
                str(worker.in_flight),
                str(worker.requests),
                str(worker.restarts),
                _ago(worker.last_used_at, now),
                output.listed(worker.clients),
            )
            for worker in workers
        ],
    )


def _ago(then: float | None, now: float) -> str:
    return "never" if then is None else f"{output.seconds(max(0.0, now - then))} ago"
