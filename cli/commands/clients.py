"""`modelsup clients`: who holds which model."""

from __future__ import annotations

import click

from .. import output
from ..context import Context, pass_context
from ..parameters import json_option


@click.command(short_help="List the clients and what they hold.")
@json_option
@pass_context
def clients(context: Context, *, as_json: bool) -> None:
    """List the clients, their current models, and how long their leases live unused."""
    with context.client() as client:
        leases = client.clients()
    if as_json:
        output.print_json(leases)
        return
    output.print_table(
        ("CLIENT", "MODEL", "VERSION", "WORKER", "PRIVATE", "REQUESTS", "EXPIRES IN"),
        [
            (
                lease.id,
                lease.model,
                lease.version or "-",
                lease.worker or "-",
                "yes" if lease.private else "-",
                str(lease.requests),
                output.seconds(lease.expires_in_seconds),
            )
            for lease in leases
        ],
    )
