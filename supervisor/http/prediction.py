"""One prediction: from the client to a worker and back, without looking into bodies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..errors import DeadlineExceeded, TimedOut, WorkerDied
from .finding import Tries
from .patience import Overdue, Patience, Stalled
from .request_body import HELD
from .routes import WORKER_PATHS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .call import Call
    from .finding import Finder
    from .patience import Reason
    from .router import Worker
    from .routes import Route


class Prediction:
    """Finds the worker for a request and passes the request through.

    Ready worker with room: at once; else: wait for the load, and for its turn, as long as the
    client does; answer of the worker → client; worker died before it answered → another one, once,
    if the whole body is here, then 503; silent worker → 504 and a report.

    `limit` is how many seconds may pass without anything moving. Raises BadRequest.
    """

    def __init__(self, finder: Finder, route: Route, call: Call, limit: float) -> None:
        self._finder = finder
        self._route = route
        self._call = call
        self._limit = limit
        self._keep_alive = call.keep_alive()
        self._time_limit = call.time_limit()
        self._worker: Worker | None = None

    async def run(self) -> None:
        """Answer the request. Raises SupervisorError, ClientGone."""
        body = self._call.body
        body.check_declared()
        patience = Patience(body, self._limit, self._time_limit)
        try:
            patience.start()
            await body.fill(HELD)
            await self._answer(patience)
        except asyncio.CancelledError:
            reason = patience.verdict()
            if reason is None:
                raise
            raise self._explain(reason) from None
        finally:
            patience.stop()

    async def _answer(self, patience: Patience) -> None:
        held, whole = self._call.body.take(), self._call.body.complete
        tries = Tries(self._finder, repeatable=whole)
        while True:
            self._worker = worker = self._finder.take(self._route) or await self._turn(patience)
            try:
                await self._ask(worker, held, patience)
            except WorkerDied as error:
                if self._call.started:
                    raise
                patience.pause()
                self._worker = None
                await tries.after(error, worker)
                patience.start()
            else:
                return

    async def _ask(self, worker: Worker, held: bytes, patience: Patience) -> None:
        completed = False
        try:
            if self._keep_alive is not None:
                self._finder.keep_alive(worker, self._keep_alive)
            await self._relay(worker, held, patience)
            completed = True
        finally:
            worker.end(completed)

    async def _turn(self, patience: Patience) -> Worker:
        # How long a load may take is the fleet's business; a client that goes takes back its wish.
        patience.pause()
        patience.watch_client()
        worker = await self._finder.turn(self._route)
        patience.pause()
        patience.start()
        return worker

    async def _relay(self, worker: Worker, held: bytes, patience: Patience) -> None:
        body = self._call.body
        patience.moved()
        response = await worker.upstream.exchange(
            b"POST",
            WORKER_PATHS[self._route.kind],
            self._call.headers,
            held,
            None if body.complete else _moving(body.rest(), patience),
        )
        try:
            await self._call.pass_on(response, worker.uid, patience)
        finally:
            response.close()

    def _explain(self, reason: Reason) -> Exception:
        if isinstance(reason, Overdue):
            return self._overdue()
        if not isinstance(reason, Stalled):
            return reason
        seconds = f"{self._limit:g} s"
        if self._call.body.waiting:
            return TimedOut(f"the client sent nothing of its body for {seconds}; send it faster")
        if self._call.sending:
            return TimedOut(f"the client read nothing of its answer for {seconds}")
        return self._finder.hung(self._worker)

    def _overdue(self) -> DeadlineExceeded:
        where = "the worker has not answered yet"
        if self._call.body.waiting:
            where = "its body is not all here yet"
        elif self._call.sending:
            where = "its answer is not all read yet"
        elif self._worker is None:
            where = "it waits for its model to be loaded, or for its turn"
        else:
            self._finder.overdue(self._worker)
        return DeadlineExceeded(f"the {self._time_limit:g} s of the request are up; {where}")


async def _moving(pieces: AsyncIterator[bytes], patience: Patience) -> AsyncIterator[bytes]:
    async for piece in pieces:
        patience.moved()
        yield piece
