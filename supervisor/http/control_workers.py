"""The calls that show workers and what they printed."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from ..errors import UnknownModel, UnknownWorker
from .control_answers import memory_json, worker_memory
from .control_shapes import ShownWorker
from .operations import Text
from .request_bodies import tail_of

if TYPE_CHECKING:
    from ..fleet.views import WorkerView
    from .control_ports import ControlledFleet, Facts, LogBook
    from .control_routes import Routes
    from .control_shapes import Workers
    from .on_loop import OnLoop


def add_worker_routes(
    routes: Routes, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts, logs: LogBook
) -> None:
    """Add /api/workers, /api/workers/{id} and the logs of a model."""

    @routes.add("GET", "/api/workers")
    def workers() -> Workers:
        """All workers."""
        views = on_loop.call(fleet.workers)
        return {"workers": [_worker(view, facts) for view in views]}

    @routes.add("GET", "/api/workers/<uid>", raises=(UnknownWorker,))
    def worker(uid: str) -> ShownWorker:
        """One worker."""
        return _worker(on_loop.call(lambda: fleet.worker(uid)), facts)

    @routes.add("GET", "/api/models/<name>/logs", query=tail_of, raises=(UnknownModel,))
    def model_logs(name: str, query: tuple[int, bool]) -> Text:
        """What the model's workers printed lately; with `follow=1` also what they print now."""
        count, _ = query  # a log to be followed never comes here: see `streams`

        def tail() -> list[str]:
            fleet.model(name)
            return [f"{line.text}\n" for line in logs.tail(name, count)]

        return Text("".join(on_loop.call(tail)))


def _worker(view: WorkerView, facts: Facts) -> ShownWorker:
    shown = {field.name: getattr(view, field.name) for field in fields(view)}
    memory = worker_memory(facts, view)
    return ShownWorker(**shown, memory=None if memory is None else memory_json(memory))
