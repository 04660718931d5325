"""The calls about prepared models and their cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..errors import (
    CacheFailed,
    DoesNotFit,
    LoadFailed,
    NotPreparable,
    PrepareFailed,
    SourceConflict,
    UnknownForm,
    UnknownModel,
)
from .operations import Accepted
from .problem import Busy
from .request_bodies import checked_name, model_body, wait_of

if TYPE_CHECKING:
    from ..fleet.views import FormView
    from .control_ports import ControlledFleet
    from .control_routes import Routes
    from .control_shapes import Cache, LoadGoesOn, PrepareAnswer, RemovedForms
    from .on_loop import OnLoop
    from .operations import Raised
    from .request_bodies import ModelBody

PREPARING: Final[Raised] = (
    UnknownModel,
    SourceConflict,
    LoadFailed,
    NotPreparable,
    PrepareFailed,
    CacheFailed,
    DoesNotFit,
    Busy,
)


def add_prepared_routes(routes: Routes, fleet: ControlledFleet, on_loop: OnLoop) -> None:
    """Add /api/models/NAME/prepare, and /api/cache with what lies under it."""

    @routes.add(
        "POST", "/api/models/<name>/prepare", query=wait_of, body=model_body, raises=PREPARING
    )
    def prepare(name: str, query: float, body: ModelBody) -> PrepareAnswer | Accepted[LoadGoesOn]:
        """Make a model's prepared form, if it has none; 202 if that takes longer than `wait`."""
        checked_name("model", name)
        view = on_loop.wait(
            lambda: fleet.prepare(name, body.source, body.runtime, body.options, query)
        )
        if view is not None:
            return {"model": name, "state": "ready", "form": view.form, "bytes": view.bytes}
        state = on_loop.call(lambda: fleet.model(name).prepared.state)
        return Accepted({"model": name, "state": state, "status_url": f"/api/models/{name}"})

    @routes.add("GET", "/api/cache", raises=(CacheFailed,))
    def cache() -> Cache:
        """The prepared models in the cache."""
        forms = on_loop.wait(fleet.preparations.forms)
        return {"forms": forms, "bytes": _size(forms)}

    @routes.add("DELETE", "/api/cache", raises=(CacheFailed,))
    def clear_cache() -> RemovedForms:
        """Remove all prepared models; workers that have one loaded keep it."""
        return _removed(on_loop.wait(lambda: _remove_all(fleet)))

    @routes.add("DELETE", "/api/cache/<name>", raises=(UnknownForm, CacheFailed))
    def remove_form(name: str) -> RemovedForms:
        """Remove one prepared model; workers that have it loaded keep it."""
        return _removed([on_loop.wait(lambda: fleet.preparations.remove(name))])


async def _remove_all(fleet: ControlledFleet) -> list[FormView]:
    removed = []
    for form in await fleet.preparations.forms():
        try:
            removed.append(await fleet.preparations.remove(form.name))
        except UnknownForm:  # somebody else was first
            continue
    return removed


def _removed(forms: list[FormView]) -> RemovedForms:
    return {"removed": forms, "bytes": _size(forms)}


def _size(forms: list[FormView]) -> int:
    return sum(form.bytes for form in forms)
