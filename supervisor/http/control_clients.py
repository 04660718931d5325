"""The calls about clients: who holds which model, swap and release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask, Response, request

from .control_answers import answer
from .request_bodies import checked_name, no_query, read_json, swap_body, wait_of

if TYPE_CHECKING:
    from .control_ports import ControlledFleet
    from .on_loop import OnLoop


def add_client_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add /api/clients and what lies under it."""

    @app.get("/api/clients")
    def clients() -> Response:
        no_query(request.args)
        return answer({"clients": on_loop.call(fleet.clients)})

    @app.get("/api/clients/<client>")
    def client(client: str) -> Response:
        no_query(request.args)
        return answer(on_loop.call(lambda: fleet.client(client)))

    @app.put("/api/clients/<client>/model")
    def swap(client: str) -> Response:
        wait = wait_of(request.args)
        checked_name("client", client)
        body = swap_body(read_json(request.get_data(), request.content_type))
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
                wait,
            )
        )
        receipt = None if swapped.receipt is None else swapped.receipt.to_json()
        return answer(
            {
                "client": swapped.client,
                "model": swapped.model,
                "version": swapped.version,
                "worker": swapped.worker,
                "previous": swapped.previous,
                "receipt": receipt,
                "kept": swapped.kept,
                "seconds": swapped.seconds,
            }
        )

    @app.delete("/api/clients/<client>")
    def release(client: str) -> Response:
        no_query(request.args)
        read_json(request.get_data(), request.content_type).done()
        released = on_loop.wait(lambda: fleet.release(client))
        receipt = None if released.receipt is None else released.receipt.to_json()
        return answer(
            {
                "client": released.client,
                "model": released.model,
                "receipt": receipt,
                "kept": released.kept,
            }
        )
