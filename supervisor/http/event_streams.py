"""Events as they happen, as server-sent events: ASGI of their own, as followed logs are."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any, Final, Protocol

import orjson

from ..errors import SupervisorError
from .asgi import answer_problem, encode_headers
from .following import query_of, until_over
from .operations import LAST_EVENT_ID
from .request_bodies import follows_events, query_fields

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..fleet.events import Event, Events
    from ..fleet.views import Books, ClientView, ModelView, WorkerView
    from .asgi import Receive, Scope, Send

HEARTBEAT: Final = 15.0  # seconds; some proxies cut a connection that is silent for 30
_PATH: Final = re.compile(r"/api/events/?")
_NOTHING_NEW: Final = b": nothing new\n\n"  # a comment, which every reader skips
_STAYS: Final = frozenset({"0", "false"})
_HEADERS: Final = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy in front must pass each event on at once
}


class WatchedFleet(Protocol):
    """The fleet, as a watcher sees it. Called on the event loop."""

    @property
    def events(self) -> Events:
        """What happened lately."""
        ...

    def models(self) -> list[ModelView]:
        """Return the catalogue."""
        ...

    def workers(self) -> list[WorkerView]:
        """Return all workers."""
        ...

    def clients(self) -> list[ClientView]:
        """Return all leases."""
        ...

    def books(self) -> Books:
        """Return what is budgeted and charged, and which models wait."""
        ...


class EventStreams:
    """Answers `GET /api/events`: the whole state, then each event as it happens.

    One who comes back with the id of the last event it saw gets those since, if they are still
    known. A watcher that is too slow for that gets the whole state once more.
    """

    def __init__(self, fleet: WatchedFleet, heartbeat: float = HEARTBEAT) -> None:
        self._fleet = fleet
        self._heartbeat = heartbeat  # seconds
        self._ended = asyncio.Event()

    def takes(self, scope: Scope) -> bool:
        """Say whether a request is for a stream of events."""
        return (
            scope["method"] == "GET"
            and _PATH.fullmatch(scope["path"]) is not None
            and query_of(scope).get("follow") not in _STAYS
        )

    def close(self) -> None:
        """End all streams, and each new one after its first message."""
        self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client goes or `close` is called."""
        try:
            follows_events(query_fields(query_of(scope)))
            last_seen = _last_seen(scope)
        except SupervisorError as error:
            await answer_problem(send, error)
            return
        headers = encode_headers(_HEADERS)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        last_seen = await self._catch_up(send, last_seen)
        await until_over(self._stream(send, last_seen), receive, self._ended)
        await send({"type": "http.response.body", "body": b""})

    async def _stream(self, send: Send, last_seen: int) -> None:
        while True:
            # No await between the look and the wait: an event in between would be noticed late.
            if self._fleet.events.after(last_seen) == []:
                try:
                    async with asyncio.timeout(self._heartbeat):
                        await self._fleet.events.changed()
                except TimeoutError:
                    await _send(send, _NOTHING_NEW)
                    continue
            last_seen = await self._catch_up(send, last_seen)

    async def _catch_up(self, send: Send, last_seen: int) -> int:
        """Send what happened after an id, or the state; return the id of the last event."""
        last = self._fleet.events.last_id
        news = self._fleet.events.after(last_seen)
        await _send(send, self._state() if news is None else _lines(news) or _NOTHING_NEW)
        return last

    def _state(self) -> bytes:
        fleet = self._fleet
        state = {
            "models": fleet.models(),
            "workers": fleet.workers(),
            "clients": fleet.clients(),
            "queue": fleet.books().queue,
        }
        return _message(fleet.events.last_id, state, "event: state\n")


def _last_seen(scope: Scope) -> int:
    """Return the id to go on from; -1, which no event has, where there is none. Raises Invalid."""
    value = dict(scope["headers"]).get(b"last-event-id", b"").decode("latin-1")
    return int(LAST_EVENT_ID.checked(value) or "-1")


def _lines(events: Sequence[Event]) -> bytes:
    return b"".join(_message(event.id, event) for event in events)


def _message(number: int, data: Any, name: str = "") -> bytes:
    return f"{name}id: {number}\ndata: ".encode() + orjson.dumps(data) + b"\n\n"


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})
