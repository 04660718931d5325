"""The calls that show workers and what they printed."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, request

from .control_answers import answer, memory_json, worker_memory
from .request_bodies import no_query, tail_of

if TYPE_CHECKING:
    from ..fleet.views import WorkerView
    from .control_ports import ControlledFleet, Facts, LogBook
    from .on_loop import OnLoop


def add_worker_routes(
    app: Flask, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts, logs: LogBook
) -> None:
    """Add /api/workers, /api/workers/{id} and the logs of a model."""

    @app.get("/api/workers")
    def workers() -> Response:
        no_query(request.args)
        views = on_loop.call(fleet.workers)
        return answer({"workers": [_worker(view, facts) for view in views]})

    @app.get("/api/workers/<uid>")
    def worker(uid: str) -> Response:
        no_query(request.args)
        return answer(_worker(on_loop.call(lambda: fleet.worker(uid)), facts))

    @app.get("/api/models/<name>/logs")
    def model_logs(name: str) -> Response:
        count, _ = tail_of(request.args)  # a log to be followed never comes here: see `streams`

        def tail() -> list[str]:
            fleet.model(name)
            return [f"{line.text}\n" for line in logs.tail(name, count)]

        return Response("".join(on_loop.call(tail)), content_type="text/plain; charset=utf-8")


def _worker(view: WorkerView, facts: Facts) -> dict[str, Any]:
    shown = {field.name: getattr(view, field.name) for field in fields(view)}
    memory = worker_memory(facts, view)
    return {**shown, "memory": None if memory is None else memory_json(memory)}
