"""The calls about the catalogue, and those that load and unload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import (
    DoesNotFit,
    Held,
    LoadFailed,
    NotLoaded,
    Restarting,
    SourceConflict,
    StillLoaded,
    TimedOut,
    UnknownModel,
)
from .control_answers import loaded_json, receipts_json, scaled_json
from .operations import Accepted, Created
from .problem import Busy
from .request_bodies import checked_name, model_body, scale_body, unload_body, wait_of

if TYPE_CHECKING:
    from ..fleet.views import ModelView, Plan
    from .control_ports import ControlledFleet
    from .control_routes import Routes
    from .control_shapes import (
        Catalogue,
        LoadAnswer,
        LoadGoesOn,
        Removed,
        ScaleAnswer,
        UnloadAnswer,
    )
    from .on_loop import OnLoop
    from .operations import Raised
    from .request_bodies import ModelBody, UnloadBody

LOADING: Final[Raised] = (  # what may come of a load, whoever asks for it
    UnknownModel,
    SourceConflict,
    LoadFailed,
    DoesNotFit,
    Restarting,
    TimedOut,
    Busy,
)


def add_model_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add /api/models and what lies under it."""
    _add_catalogue_routes(routes, fleet, on_loop)
    _add_load_routes(routes, fleet, on_loop)


def _add_catalogue_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    @routes.add("GET", "/api/models")
    def models() -> Catalogue:
        """All that the supervisor knows, loaded or not."""
        return {"models": on_loop.call(fleet.models)}

    @routes.add("GET", "/api/models/<name>", raises=(UnknownModel,))
    def model(name: str) -> ModelView:
        """One model."""
        return on_loop.call(lambda: fleet.model(name))

    @routes.add("GET", "/api/models/<name>/plan", raises=(UnknownModel,))
    def plan(name: str) -> Plan:
        """What a load would do now. Nothing is done."""
        return on_loop.wait(lambda: fleet.plan(name))

    @routes.add("PUT", "/api/models/<name>", body=model_body, raises=(SourceConflict,))
    def put_model(name: str, body: ModelBody) -> ModelView | Created[ModelView]:
        """Add a model to the catalogue, or change one. Nothing is loaded."""
        checked_name("model", name)
        view, created = on_loop.call(
            lambda: fleet.put_model(name, body.source, body.runtime, body.options)
        )
        return Created(view) if created else view

    @routes.add("DELETE", "/api/models/<name>", raises=(UnknownModel, StillLoaded))
    def remove_model(name: str) -> Removed:
        """Take a model out of the catalogue."""
        on_loop.call(lambda: fleet.remove_model(name))
        return {"model": name, "removed": True}


def _add_load_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    def _going_on(name: str) -> Accepted[LoadGoesOn]:
        state = on_loop.call(lambda: fleet.model(name).state)
        return Accepted({"model": name, "state": state, "status_url": f"/api/models/{name}"})

    @routes.add("POST", "/api/models/<name>/load", query=wait_of, body=model_body, raises=LOADING)
    def load(name: str, query: float, body: ModelBody) -> LoadAnswer | Accepted[LoadGoesOn]:
        """Load a model and wait until it is ready; 202 if that takes longer than `wait`."""
        checked_name("model", name)
        loaded = on_loop.wait(
            lambda: fleet.load(name, body.source, body.runtime, body.options, query)
        )
        return _going_on(name) if loaded is None else loaded_json(loaded)

    @routes.add(
        "POST",
        "/api/models/<name>/scale",
        query=wait_of,
        body=scale_body,
        raises=tuple(error for error in LOADING if error is not SourceConflict),
    )
    def scale(name: str, query: float, body: int) -> ScaleAnswer | Accepted[LoadGoesOn]:
        """Change how many workers a model has, and wait until it has; 202 as for a load."""
        scaled = on_loop.wait(lambda: fleet.scale(name, body, query))
        return _going_on(name) if scaled is None else scaled_json(scaled)

    @routes.add(
        "POST",
        "/api/models/<name>/unload",
        body=unload_body,
        raises=(UnknownModel, NotLoaded, Held, Busy),
    )
    def unload(name: str, body: UnloadBody) -> UnloadAnswer:
        """Unload a model and wait until its memory is back."""
        return receipts_json(on_loop.wait(lambda: fleet.unload(name, body.force, body.timeout)))
