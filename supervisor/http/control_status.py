"""The calls about the supervisor itself: its status, its end, its events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from ..states import State
from .control_answers import answer
from .request_bodies import follows_events, no_query, read_json

if TYPE_CHECKING:
    from .control_ports import ControlledFleet, Facts
    from .on_loop import OnLoop


def add_status_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts) -> None:
    """Add /api/status and /api/stop."""

    @app.get("/api/status")
    def status() -> Response:
        no_query(request.args)
        return answer(on_loop.call(lambda: _status(fleet, facts)))

    @app.post("/api/stop")
    def stop() -> Response:
        no_query(request.args)
        read_json(request.get_data(), request.content_type).done()
        on_loop.call(facts.request_stop)
        return answer({"state": "stopping", "pid": facts.pid}, 202)


def add_event_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add the list of events; those who follow them never come here: see `event_streams`."""

    @app.get("/api/events")
    def events() -> Response:
        follows_events(request.args)

        def kept() -> dict[str, Any]:
            return {"events": fleet.events.kept(), "last_id": fleet.events.last_id}

        return answer(on_loop.call(kept))


def _status(fleet: ControlledFleet, facts: Facts) -> dict[str, Any]:
    models = fleet.models()
    return {
        "version": facts.version,
        "pid": facts.pid,
        "url": facts.url,
        "grpc": facts.grpc,
        "state_dir": facts.state_dir,
        "started_at": facts.started_at,
        "uptime_seconds": max(0.0, time.time() - facts.started_at),
        "state": "stopping" if facts.stopping() else "running",
        "models": {
            "known": len(models),
            "loaded": sum(model.state == State.READY for model in models),
        },
        "workers": len(fleet.workers()),
        "clients": len(fleet.clients()),
        "forkservers": list(facts.forkservers()),
    }
