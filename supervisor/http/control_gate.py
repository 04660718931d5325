"""The way into Flask: whole bodies only, and a bound on the threads that calls may hold.

Flask answers in a pool of threads. A load, swap, unload or release holds its thread until it is
done. So at most `MOST_LOADS` loads and swaps and `MOST_UNLOADS` unloads and releases wait at
once; one more of a kind is answered 429 at once. What is left of the pool, `QUICK_THREADS`, can
only be held by calls that answer quickly: looking, stopping and `?wait=0` always get through.
Threads are made when first needed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Literal

from a2wsgi import WSGIMiddleware

from ..errors import SupervisorError, TooLarge
from .asgi import answer_problem
from .on_loop import stopping
from .problem import BadRequest, Busy

if TYPE_CHECKING:
    from .asgi import Message, Receive, Scope, Send
    from .control import Control

MOST_LOADS: Final = 64
MOST_UNLOADS: Final = 16
QUICK_THREADS: Final = 16
LARGEST_BODY: Final = 10**6  # bytes

Kind = Literal["load", "unload", "quick"]
_MOST: Final[dict[Kind, int]] = {"load": MOST_LOADS, "unload": MOST_UNLOADS}


class ControlGate:
    """The control API as an ASGI application.

    A caller who goes away does not end what was asked for: a load goes on.
    """

    def __init__(self, control: Control) -> None:
        self._control = control
        self._closed = False
        self._waiting: Counter[Kind] = Counter()  # calls inside, by kind
        threads = MOST_LOADS + MOST_UNLOADS + QUICK_THREADS
        wsgi: Any = control.wsgi  # a2wsgi has types of its own for WSGI and ASGI
        self._flask: Any = WSGIMiddleware(wsgi, workers=threads)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            kind = kind_of(scope)
            _check_query(scope)
            body = await _read(scope, receive)
            self._check_room(kind)
        except SupervisorError as error:
            await answer_problem(send, error)
            return
        if body is None:  # the client went away in the middle of its request
            return
        self._waiting[kind] += 1
        try:
            await self._flask(_with_length(scope, len(body)), _replay(body, receive), send)
        finally:
            self._waiting[kind] -= 1

    async def close(self) -> None:
        """Answer all waiting calls with `stopping` and return once every thread has ended."""
        self._closed = True
        self._control.close()
        await asyncio.to_thread(self._flask.executor.shutdown)

    def _check_room(self, kind: Kind) -> None:
        if self._closed:
            raise stopping()
        if kind in _MOST and self._waiting[kind] >= _MOST[kind]:
            raise Busy(
                f"{_MOST[kind]} {kind} calls already wait, the most at once; try again later"
                + (", or send ?wait=0 and look at the model's state" if kind == "load" else "")
            )


def kind_of(scope: Scope) -> Kind:
    """Say what a request may wait for: a load (or swap), an unload (or release), or nothing."""
    method, path = scope["method"], scope["path"].rstrip("/")
    if method == "POST" and path.endswith("/load"):
        return "quick" if b"wait=0" in scope["query_string"].split(b"&") else "load"
    if method == "PUT" and path.startswith("/api/clients/"):
        return "load"
    if method == "POST" and path.endswith("/unload"):
        return "unload"
    if method == "DELETE" and path.startswith("/api/clients/"):
        return "unload"
    return "quick"


def _check_query(scope: Scope) -> None:
    if not scope["query_string"].isascii():
        raise BadRequest("the query has characters that are not ASCII: percent-encode them")


async def _read(scope: Scope, receive: Receive) -> bytes | None:
    """Return the whole body, or None when the client went away. Raises TooLarge.

    Read here so that a slow sender holds no thread. Also, Flask sees no body without a length.
    """
    length = dict(scope["headers"]).get(b"content-length", b"")
    body = bytearray()
    while True:
        if len(body) > LARGEST_BODY or (length.isdigit() and int(length) > LARGEST_BODY):
            raise TooLarge(f"the body is over {LARGEST_BODY} bytes, the most for a control call")
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body", False) and len(body) <= LARGEST_BODY:
            return bytes(body)


def _with_length(scope: Scope, length: int) -> Scope:
    replaced = (b"content-length", b"transfer-encoding")
    headers = [header for header in scope["headers"] if header[0] not in replaced]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body read before, then what comes."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return rest.pop() if rest else await receive()

    return replay
