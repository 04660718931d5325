"""The control API as one Flask application, and the rules that hold for all of its calls.

Flask runs in threads; `OnLoop` carries each look at the fleet, and each wish, to its event loop.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import orjson
from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.exceptions import MethodNotAllowed as WrongMethod
from werkzeug.exceptions import NotFound as NoRoute

from ..errors import SupervisorError
from .control_clients import add_client_routes
from .control_memory import add_memory_routes
from .control_models import add_model_routes
from .control_prepared import add_prepared_routes
from .control_routes import Routes
from .control_status import add_event_routes, add_status_routes
from .control_workers import add_worker_routes
from .on_loop import OnLoop
from .openapi import describe
from .prediction_operations import prediction_operations
from .probes import PROBES
from .problem import (
    BadRequest,
    ForbiddenOrigin,
    MethodNotAllowed,
    NotFound,
    problem,
    problem_headers,
    status_of,
)

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from .control_ports import ControlledFleet, Facts, LogBook
    from .operations import Operation

logger = logging.getLogger(__name__)

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Control:
    """The control API: a WSGI application, and the end of all that its threads wait for."""

    wsgi: Flask
    on_loop: OnLoop
    operations: Sequence[Operation]  # what it can do

    def close(self) -> None:
        """Answer every waiting call, and each new one, with `stopping`. Call it on the loop."""
        self.on_loop.close()


def create_control(
    fleet: ControlledFleet, loop: asyncio.AbstractEventLoop, facts: Facts, logs: LogBook
) -> Control:
    """Return the control API of a fleet that lives on `loop`."""
    app = Flask(__name__, static_folder=None, template_folder=None)
    app.url_map.strict_slashes = False  # a redirect would lose the body of a POST
    app.url_map.merge_slashes = False
    on_loop = OnLoop(loop)
    app.before_request(_refuse_other_sites)
    _add_error_handlers(app)
    operations: list[Operation] = []
    supervisor = Routes(app, operations, "supervisor")
    add_status_routes(supervisor, fleet, on_loop, facts)
    add_event_routes(supervisor, fleet, on_loop)
    add_memory_routes(supervisor, fleet, on_loop, facts)
    add_worker_routes(Routes(app, operations, "workers"), fleet, on_loop, facts, logs)
    add_model_routes(Routes(app, operations, "models"), fleet, on_loop)
    add_prepared_routes(Routes(app, operations, "prepared models"), fleet, on_loop)
    add_client_routes(Routes(app, operations, "clients"), fleet, on_loop)
    _add_description(supervisor, operations, facts)
    return Control(app, on_loop, operations)


def _add_description(routes: Routes, control: Sequence[Operation], facts: Facts) -> None:
    @routes.add("GET", "/openapi.json")
    def openapi() -> dict[str, Any]:
        """This description of all that there is, as OpenAPI."""
        return describe([*control, *prediction_operations(), *PROBES], facts.version)


def _refuse_other_sites() -> None:
    """Keep a web page that the user visits from changing the supervisor behind their back."""
    origin = request.headers.get("Origin")
    if request.method in SAFE_METHODS or origin is None:
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise ForbiddenOrigin(f"a page of {origin!r} may not change this supervisor")


def _add_error_handlers(app: Flask) -> None:
    @app.errorhandler(SupervisorError)
    def told(error: SupervisorError) -> Response:
        return _problem(error)

    @app.errorhandler(HTTPException)
    def refused(error: HTTPException) -> Response:
        if isinstance(error, NoRoute):
            return _problem(NotFound(f"nothing is at {request.path}"))
        if isinstance(error, WrongMethod):
            allow = tuple(sorted(error.valid_methods or ()))
            what = f"{request.path} takes {', '.join(allow)}, not {request.method}"
            return _problem(MethodNotAllowed(what, allow=allow))
        return _problem(BadRequest(error.description or "the request cannot be read"))

    @app.errorhandler(Exception)
    def unexpected(error: Exception) -> Response:
        logger.error("%s %s failed", request.method, request.path, exc_info=error)
        return _problem(error)


def _problem(error: Exception) -> Response:
    return Response(orjson.dumps(problem(error)), status_of(error), problem_headers(error))
