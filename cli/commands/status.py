"""`modelsup status`: is the supervisor there, and what does it use."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option

if TYPE_CHECKING:
    from modelsup.client import Memory, Status


@click.command()
@json_option
@pass_context
def status(context: Context, *, as_json: bool) -> None:
    """Show the supervisor and the memory it uses."""
    with context.client() as client:
        found, memory = client.status(), client.memory()
    if as_json:
        output.print_json({"status": found, "memory": memory})
    else:
        _print(found, memory)


def _print(found: Status, memory: Memory) -> None:
    host = memory.host
    output.print_table(
        ("SUPERVISOR", found.url),
        [
            ("gRPC", found.grpc or "-"),
            ("version", found.version),
            ("state", found.state),
            ("pid", str(found.pid)),
            ("up", output.seconds(found.uptime_seconds)),
            ("state folder", found.state_dir or "-"),
            ("models", f"{found.models.loaded} loaded of {found.models.known}"),
            ("workers", str(found.workers)),
            ("clients", str(found.clients)),
            *(
                (f"forkserver {f.runtime}", f"{f.state}, pid {f.pid or '-'}")
                for f in found.forkservers
            ),
            ("memory, supervisor", output.size(host.supervisor_bytes)),
            ("memory, forkservers", output.size(host.forkservers_bytes)),
            ("memory, workers", output.size(host.workers_bytes)),
            (
                "memory, machine",
                f"{output.size(host.available_bytes)} free of {output.size(host.total_bytes)}",
            ),
        ],
    )
