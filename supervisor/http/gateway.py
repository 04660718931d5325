"""A raw ASGI application for /v1, /v2 and /clients.

Bodies of predictions pass as bytes; at most one or two megabytes of one request are held at any
time, so slow clients hold up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import SupervisorError
from .call import Call
from .finding import Finder
from .model_info import ModelInfo
from .patience import Patience
from .prediction import Prediction
from .problem import MethodNotAllowed, NotFound
from .request_body import ClientGone
from .routes import WORKER_PATHS, match

if TYPE_CHECKING:
    from .call import Scope, Send
    from .request_body import Receive
    from .router import Router
    from .routes import Route

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take."""

    max_body_size: int  # bytes
    request_timeout: float  # seconds without anything moving
    autoload: bool = True  # whether asking for a model's metadata may load it
    max_batch_size: int = 64  # rows that a worker puts into one call


class Gateway:
    """Answers each request: predictions by a worker, the questions about models by itself."""

    def __init__(self, router: Router, limits: Limits) -> None:
        self._router = router
        self._limits = limits
        self._finder = Finder(router, limits.request_timeout)
        self._info = ModelInfo(
            router,
            self._ensure_ready,
            autoload=limits.autoload,
            max_batch_size=limits.max_batch_size,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request of type "http"."""
        call = Call(scope, receive, send, self._limits.max_body_size)
        try:
            route = _find(scope)
            if route.kind in WORKER_PATHS:
                await Prediction(self._finder, route, call, self._limits.request_timeout).run()
            else:
                await call.answer(*await self._info.answer(route, call))
        except ClientGone:
            _logger.debug("client gone", extra={"path": scope["path"]})
        except SupervisorError as error:
            await self._fail(call, error, scope)
        except Exception:
            _logger.exception("request failed", extra={"path": scope["path"]})
            message = "the supervisor failed at this request; its log has the traceback"
            await self._fail(call, SupervisorError(message), scope)

    async def _fail(self, call: Call, error: SupervisorError, scope: Scope) -> None:
        if not call.started:
            await call.fail(error)
            return
        # Returning without the rest makes the server cut the connection, which tells the
        # client that its answer is not whole.
        _logger.warning("answer cut short", extra={"path": scope["path"], "reason": str(error)})

    async def _ensure_ready(self, route: Route, call: Call) -> None:
        """Load a model for one who asks about it."""
        patience = Patience(call.body, self._limits.request_timeout)
        patience.watch_client()
        try:
            await self._finder.ensure_ready(route)
        except asyncio.CancelledError:
            reason = patience.verdict()
            if reason is None:
                raise
            raise reason from None
        finally:
            patience.stop()


def _find(scope: Scope) -> Route:
    route = match(scope["raw_path"])
    if route is None:
        raise NotFound(f"there is no path {scope['path']!r}; see the HTTP reference")
    if scope["method"] not in route.methods:
        raise MethodNotAllowed(
            f"the path {scope['path']!r} has no method {scope['method']}; use {route.methods[0]}",
            allow=route.methods,
        )
    return route
