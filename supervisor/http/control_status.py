"""The calls about the supervisor itself: its status, its end, its events."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..states import State
from .operations import EVENTS_TYPE, LAST_EVENT_ID, Accepted
from .request_bodies import follows_events

if TYPE_CHECKING:
    from .control_ports import ControlledFleet, Facts
    from .control_routes import Routes
    from .control_shapes import Ending, KeptEvents, Status
    from .on_loop import OnLoop


def add_status_routes(
    routes: Routes, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts
) -> None:
    """Add /api/status and /api/stop."""

    @routes.add("GET", "/api/status")
    def status() -> Status:
        """The supervisor, and how much there is of everything."""
        return on_loop.call(lambda: _status(fleet, facts))

    @routes.add("POST", "/api/stop")
    def stop() -> Accepted[Ending]:
        """End the supervisor and its workers in good order."""
        on_loop.call(facts.request_stop)
        return Accepted({"state": "stopping", "pid": facts.pid})


def add_event_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add the list of events; those who follow them never come here: see `event_streams`."""

    @routes.add(
        "GET", "/api/events", query=follows_events, headers=(LAST_EVENT_ID,), streams=EVENTS_TYPE
    )
    def events(query: bool) -> KeptEvents:
        """What happens, as server-sent events; with `follow=0` what happened lately."""

        def kept() -> KeptEvents:
            return {"events": fleet.events.kept(), "last_id": fleet.events.last_id}

        return on_loop.call(kept)


def _status(fleet: ControlledFleet, facts: Facts) -> Status:
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
