"""The calls about the catalogue, and those that load and unload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from .control_answers import answer, loaded_json, receipts_json
from .request_bodies import (
    checked_name,
    model_body,
    no_query,
    read_json,
    unload_body,
    wait_of,
)

if TYPE_CHECKING:
    from .control_ports import ControlledFleet
    from .on_loop import OnLoop


def add_model_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add /api/models and what lies under it."""
    _add_catalogue_routes(app, fleet, on_loop)
    _add_load_routes(app, fleet, on_loop)


def _add_catalogue_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    @app.get("/api/models")
    def models() -> Response:
        no_query(request.args)
        return answer({"models": on_loop.call(fleet.models)})

    @app.get("/api/models/<name>")
    def model(name: str) -> Response:
        no_query(request.args)
        return answer(on_loop.call(lambda: fleet.model(name)))

    @app.get("/api/models/<name>/plan")
    def plan(name: str) -> Response:
        no_query(request.args)
        return answer(on_loop.wait(lambda: fleet.plan(name)))

    @app.put("/api/models/<name>")
    def put_model(name: str) -> Response:
        no_query(request.args)
        checked_name("model", name)
        body = model_body(read_json(request.get_data(), request.content_type))
        view, created = on_loop.call(
            lambda: fleet.put_model(name, body.source, body.runtime, body.options)
        )
        return answer(view, 201 if created else 200)

    @app.delete("/api/models/<name>")
    def remove_model(name: str) -> Response:
        no_query(request.args)
        read_json(request.get_data(), request.content_type).done()
        on_loop.call(lambda: fleet.remove_model(name))
        return answer({"model": name, "removed": True})


def _add_load_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    @app.post("/api/models/<name>/load")
    def load(name: str) -> Response:
        wait = wait_of(request.args)
        checked_name("model", name)
        body = model_body(read_json(request.get_data(), request.content_type))
        loaded = on_loop.wait(
            lambda: fleet.load(name, body.source, body.runtime, body.options, wait)
        )
        if loaded is not None:
            return answer(loaded_json(loaded))
        return answer(_still_loading(fleet, on_loop, name), 202)

    @app.post("/api/models/<name>/unload")
    def unload(name: str) -> Response:
        no_query(request.args)
        body = unload_body(read_json(request.get_data(), request.content_type))
        receipts = on_loop.wait(lambda: fleet.unload(name, body.force, body.timeout))
        return answer(receipts_json(receipts))


def _still_loading(fleet: ControlledFleet, on_loop: OnLoop, name: str) -> dict[str, Any]:
    state = on_loop.call(lambda: fleet.model(name).state)
    return {"model": name, "state": state, "status_url": f"/api/models/{name}"}
