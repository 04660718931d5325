"""The calls about clients: who holds which model, swap and release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import Superseded, UnknownClient
from .control_models import LOADING
from .problem import Busy
from .request_bodies import checked_name, swap_body, wait_of

if TYPE_CHECKING:
    from ..fleet.views import ClientView
    from .control_ports import ControlledFleet
    from .control_routes import Routes
    from .control_shapes import Clients, ReleaseAnswer, SwapAnswer
    from .on_loop import OnLoop
    from .request_bodies import SwapBody


def add_client_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add /api/clients and what lies under it."""

    @routes.add("GET", "/api/clients")
    def clients() -> Clients:
        """All clients that hold a model."""
        return {"clients": on_loop.call(fleet.clients)}

    @routes.add("GET", "/api/clients/<client>", raises=(UnknownClient,))
    def client(client: str) -> ClientView:
        """One client and its current model."""
        return on_loop.call(lambda: fleet.client(client))

    @routes.add(
        "PUT",
        "/api/clients/<client>/model",
        query=wait_of,
        body=swap_body,
        raises=(*LOADING, Superseded),
    )
    def swap(client: str, query: float, body: SwapBody) -> SwapAnswer:
        """Make a model the client's current one."""
        checked_name("client", client)
        what = body.what
        swapped = on_loop.wait(
            lambda: fleet.swap(
                client,
                body.model,
                what.source,
                what.runtime,
                what.options,
                body.private,
                body.ttl,
                query,
            )
        )
        return {
            "client": swapped.client,
            "model": swapped.model,
            "version": swapped.version,
            "worker": swapped.worker,
            "previous": swapped.previous,
            "receipt": None if swapped.receipt is None else swapped.receipt.to_json(),
            "kept": swapped.kept,
            "seconds": swapped.seconds,
        }

    @routes.add("DELETE", "/api/clients/<client>", raises=(UnknownClient, Busy))
    def release(client: str) -> ReleaseAnswer:
        """End the client's lease."""
        released = on_loop.wait(lambda: fleet.release(client))
        return {
            "client": released.client,
            "model": released.model,
            "receipt": None if released.receipt is None else released.receipt.to_json(),
            "kept": released.kept,
        }
