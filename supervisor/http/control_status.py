"""The calls about the supervisor itself: its status, its end, and where the memory is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from ..states import State
from .control_answers import answer, memory_json, memory_of, worker_memory
from .request_bodies import no_query, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Memory
    from ..fleet.views import WorkerView
    from .control_ports import ControlledFleet, Facts, Forkserver
    from .on_loop import OnLoop


def add_status_routes(app: Flask, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts) -> None:
    """Add /api/status, /api/stop and /api/memory."""

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

    @app.get("/api/memory")
    def memory() -> Response:
        no_query(request.args)
        workers, forkservers = on_loop.call(lambda: (fleet.workers(), list(facts.forkservers())))
        return answer(_memory(facts, workers, forkservers))


def _status(fleet: ControlledFleet, facts: Facts) -> dict[str, Any]:
    models = fleet.models()
    return {
        "version": facts.version,
        "pid": facts.pid,
        "url": facts.url,
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


def _memory(
    facts: Facts, workers: Sequence[WorkerView], forkservers: Sequence[Forkserver]
) -> dict[str, Any]:
    measured = [(worker, worker_memory(facts, worker)) for worker in workers]
    own = _pss([memory_of(facts, facts.pid)])
    theirs = _pss([memory_of(facts, forkserver.pid) for forkserver in forkservers])
    models = _pss([memory for _, memory in measured])
    host = facts.host_memory()
    return {
        "host": {
            "total_bytes": host.total,
            "available_bytes": host.available,
            "limit_bytes": host.limit,
            "supervisor_bytes": own,
            "forkservers_bytes": theirs,
            "workers_bytes": models,
            "tree_bytes": own + theirs + models,
        },
        "gpus": [],
        "workers": [
            {"id": worker.id, "model": worker.model, **memory_json(memory)}
            for worker, memory in measured
            if memory is not None
        ],
    }


def _pss(measured: Sequence[Memory | None]) -> int:
    return sum(memory.pss for memory in measured if memory is not None)
