"""The way of a prediction: from the client to a worker and back, without looking into bodies.

A raw ASGI application for /v1, /v2 and /clients. Bodies pass as bytes; at most a few hundred
kilobytes of one request are held at any time, so slow clients hold up nobody else.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import SupervisorError, TimedOut, WorkerDied
from .call import Call
from .finding import Finder, explained
from .model_info import ModelInfo
from .patience import Patience, Stalled
from .problem import MethodNotAllowed, NotFound
from .request_body import ClientGone
from .routes import WORKER_PATHS, match

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .call import Scope, Send
    from .patience import Reason
    from .request_body import Receive
    from .router import Router, Worker
    from .routes import Route

BUFFERED: Final = 256 * 1024  # bytes of a body that are read before a worker is taken

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take."""

    max_body_size: int  # bytes
    request_timeout: float  # seconds without anything moving
    autoload: bool = True  # whether asking for a model's metadata may load it
    max_batch_size: int = 64  # rows that a worker puts into one call


class Gateway:
    """Finds the worker for each request and passes the request through.

    route → ready worker with room: at once; else: wait for the load, and for its turn, as long as
    the client does, or 429 where too many wait; answer of the worker → client; worker died → 503;
    silent worker → 504 and a report.
    """

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
                await self._predict(route, call)
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

    async def _predict(self, route: Route, call: Call) -> None:
        body = call.body
        body.check_declared()
        keep_alive = call.keep_alive()
        patience = Patience(body, self._limits.request_timeout)
        patience.start()
        worker = None
        try:
            await body.fill(BUFFERED)
            worker = self._finder.take(route) or await self._turn(route, patience)
            completed = False
            try:
                if keep_alive is not None:
                    self._router.keep_alive(worker, keep_alive)
                await self._relay(worker, WORKER_PATHS[route.kind], call, patience)
                completed = True
            finally:
                worker.end(completed)
        except asyncio.CancelledError:
            reason = patience.verdict()
            if reason is None:
                raise
            raise self._explain(reason, call, worker) from None
        except WorkerDied as error:
            patience.stop()
            if call.started or worker is None:
                raise
            raise await explained(error, worker) from error
        finally:
            patience.stop()

    async def _relay(self, worker: Worker, path: bytes, call: Call, patience: Patience) -> None:
        body = call.body
        patience.moved()
        response = await worker.upstream.exchange(
            b"POST",
            path,
            call.headers,
            body.take(),
            None if body.complete else _moving(body.rest(), patience),
        )
        try:
            await call.pass_on(response, worker.uid, patience)
        finally:
            response.close()

    async def _turn(self, route: Route, patience: Patience) -> Worker:
        # How long a load may take is the fleet's business; a client that goes takes back its wish.
        patience.stop()
        patience.watch_client()
        worker = await self._finder.turn(route)
        patience.stop()
        patience.start()
        return worker

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
            raise self._explain(reason, call, None) from None
        finally:
            patience.stop()

    def _explain(self, reason: Reason, call: Call, worker: Worker | None) -> Exception:
        if not isinstance(reason, Stalled):
            return reason
        seconds = f"{self._limits.request_timeout:g} s"
        if call.body.waiting:
            return TimedOut(f"the client sent nothing of its body for {seconds}; send it faster")
        if call.sending:
            return TimedOut(f"the client read nothing of its answer for {seconds}")
        return self._finder.hung(worker)


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


async def _moving(pieces: AsyncIterator[bytes], patience: Patience) -> AsyncIterator[bytes]:
    async for piece in pieces:
        patience.moved()
        yield piece
