"""Followed logs: ASGI of their own, since each would hold one of Flask's threads for hours."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import SupervisorError
from .asgi import answer_problem, encode_headers
from .following import query_of, until_over
from .request_bodies import query_fields, tail_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .asgi import Receive, Scope, Send
    from .control_ports import LogBook, LogFeed, LogLine

_PATH: Final = re.compile(r"/api/models/([^/]+)/logs/?")
_FOLLOWS: Final = frozenset({"1", "true"})
_HEADERS: Final = {
    "Content-Type": "text/plain; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # a proxy in front must pass each line on at once
}


class ModelLookup(Protocol):
    """The one thing asked of the fleet."""

    def model(self, name: str) -> object:
        """Raise UnknownModel where the catalogue has no such model."""
        ...


class LogStreams:
    """Answers `GET /api/models/{name}/logs?follow=1`: the tail, then each line as it comes."""

    def __init__(self, fleet: ModelLookup, logs: LogBook) -> None:
        self._fleet = fleet
        self._logs = logs
        self._ended = asyncio.Event()

    def takes(self, scope: Scope) -> bool:
        """Say whether a request is for a followed log."""
        return (
            scope["method"] == "GET"
            and _PATH.fullmatch(scope["path"]) is not None
            and query_of(scope).get("follow") in _FOLLOWS
        )

    def close(self) -> None:
        """End all streams, and each new one after its tail."""
        self._ended.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the client goes or `close` is called."""
        found = _PATH.fullmatch(scope["path"])
        assert found is not None, "ask `takes` first"
        try:
            count, _ = tail_of(query_fields(query_of(scope)))
            self._fleet.model(found[1])
        except SupervisorError as error:
            await answer_problem(send, error)
            return
        # No await between these two: a line must neither be lost nor come twice.
        live = self._logs.subscribe(found[1])
        tail = self._logs.tail(found[1], count)
        try:
            headers = encode_headers(_HEADERS)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await _send_lines(send, tail)
            await until_over(_pump(live, send), receive, self._ended)
            await send({"type": "http.response.body", "body": b""})
        finally:
            live.close()


async def _pump(live: LogFeed, send: Send) -> None:
    async for line in live:
        await _send_lines(send, [line])


async def _send_lines(send: Send, lines: Iterable[LogLine]) -> None:
    text = "".join(f"{line.text}\n" for line in lines)
    if text:
        body = text.encode("utf-8", "replace")
        await send({"type": "http.response.body", "body": body, "more_body": True})
