"""The way of a prediction to a worker and back, whole, for calls whose messages are whole."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import orjson

from ..errors import QueueFull, WorkerDied
from ..http.finding import Finder, Tries
from ..units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelsup.worker.contract import Signature

    from ..http.router import Router, Worker
    from ..http.routes import Route

    Headers = Sequence[tuple[bytes, bytes]]


class Reply(NamedTuple):
    """A worker's whole answer."""

    worker: str  # its id
    status: int  # of HTTP
    headers: Headers
    body: bytes

    @property
    def error(self) -> str:
        """What the worker said was wrong. Only for a status that is not 200."""
        return str(orjson.loads(self.body)["error"])


class Workers:
    """Sends requests to the workers of models, loading a model if need be.

    `limit`: seconds within which something of an answer must arrive. `most_held`: bytes of the
    requests that are under way at a time, for gRPC hands them over whole.
    """

    def __init__(self, router: Router, limit: float, most_held: int) -> None:
        self._finder = Finder(router, limit)
        self._limit = limit
        self._most_held = most_held
        self._held = 0

    async def signatures(self, route: Route) -> Sequence[Signature]:
        """Return what the model of a route can be called with, loading it if need be."""
        return (await self._finder.ensure_ready(route)).signatures

    async def post(self, route: Route, path: bytes, headers: Headers, body: bytes) -> Reply:
        """Return the answer of the worker that a route finds, also where it is an error.

        Raises SupervisorError. Cancelling it takes the request back.
        """
        if self._held and self._held + len(body) > self._most_held:
            raise QueueFull(
                f"requests of {format_bytes(self._held)} are under way over gRPC, and this one has "
                f"{format_bytes(len(body))}; together they may have {format_bytes(self._most_held)}"
            )
        self._held += len(body)
        try:
            return await self._post(route, path, headers, body)
        finally:
            self._held -= len(body)

    async def _post(self, route: Route, path: bytes, headers: Headers, body: bytes) -> Reply:
        tries = Tries(self._finder, repeatable=True)
        while True:
            worker = self._finder.take(route) or await self._finder.turn(route)
            completed = False
            try:
                reply = await self._exchange(worker, path, headers, body)
                completed = True
            except TimeoutError:
                raise self._finder.hung(worker) from None
            except WorkerDied as error:
                died = error
            else:
                return reply
            finally:
                worker.end(completed)
            await tries.after(died, worker)

    async def _exchange(self, worker: Worker, path: bytes, headers: Headers, body: bytes) -> Reply:
        async with asyncio.timeout(self._limit) as patience:
            response = await worker.upstream.exchange(b"POST", path, headers, body, None)
            try:
                whole = response.whole
                if whole is None:
                    pieces = []
                    async for piece in response.chunks():
                        pieces.append(piece)
                        patience.reschedule(asyncio.get_running_loop().time() + self._limit)
                    whole = b"".join(pieces)
            finally:
                response.close()
        return Reply(worker.uid, response.status, response.headers, whole)
