"""One HTTP call to the gateway: its head, its body, and the answers it gets."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..units import UnitError, parse_keep_alive
from .operations import KEEP_ALIVE, REQUEST_TIMEOUT
from .problem import BadRequest, problem_headers, status_of
from .request_body import RequestBody

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ..errors import SupervisorError
    from ..fleet.ports import UpstreamResponse
    from .patience import Patience
    from .request_body import Message, Receive

    Send = Callable[[Message], Awaitable[None]]
    Scope = dict[str, Any]

MAX_JSON: Final = 64 * 1024  # bytes of a body that is read here; that of a prediction is not
LINGER: Final = 5.0  # seconds that a client gets to notice an answer that came before its body
WORKER_HEADER: Final = b"x-modelsup-worker"
ERROR_HEADER: Final = b"x-modelsup-error"
REQUEST_ID: Final = b"x-request-id"

_KEEP_ALIVE: Final = KEEP_ALIVE.name.lower().encode()
_TIMEOUT: Final = REQUEST_TIMEOUT.name.lower().encode()
_OURS: Final = frozenset({_KEEP_ALIVE, _TIMEOUT})  # not for the worker
_NOTED: Final = frozenset({b"content-length", b"transfer-encoding", REQUEST_ID}) | _OURS
_CLOSE: Final = (b"connection", b"close")


class Call:
    """What belongs together for the time of one request.

    `started` says whether the head of an answer was sent, `sending` whether the client is being
    waited for to read.
    """

    __slots__ = ("_ours", "_request_id", "_send", "body", "headers", "sending", "started")

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body_size: int) -> None:
        self.headers: list[tuple[bytes, bytes]] = scope["headers"]
        self.started = False
        self.sending = False
        self._send = send
        self._request_id: bytes | None = None
        self._ours: dict[bytes, bytes] = {}
        declared: int | None = 0
        for name, value in self.headers:
            if name in _NOTED:
                if name == REQUEST_ID:
                    self._request_id = value
                elif name == b"content-length" and declared is not None and value.isdigit():
                    declared = int(value)
                elif name in _OURS:
                    self._ours[name] = value
                else:
                    declared = None
        if self._ours:
            self.headers = [header for header in self.headers if header[0] not in _OURS]
        self.body = RequestBody(receive, declared, max_body_size)

    def keep_alive(self) -> float | None:
        """Return how long the model is to stay after this request, in seconds; None if not said.

        A negative number stands for "always". Raises BadRequest.
        """
        text = self._ours.get(_KEEP_ALIVE)
        if text is None:
            return None
        try:
            return parse_keep_alive(text.decode("latin-1"))
        except UnitError as error:
            raise BadRequest(f"the header {KEEP_ALIVE.name}: {error}") from error

    def time_limit(self) -> float | None:
        """Return the seconds that the whole request may take; None if not said.

        Raises BadRequest.
        """
        given = self._ours.get(_TIMEOUT)
        if given is None:
            return None
        text = given.decode("latin-1")
        if not REQUEST_TIMEOUT.rule.fullmatch(text):
            raise BadRequest(
                f"the header {REQUEST_TIMEOUT.name}: expected seconds such as 2.5, got {text!r:.60}"
            )
        return float(text)

    async def pass_on(self, response: UpstreamResponse, worker: str, patience: Patience) -> None:
        """Send a worker's answer to the client. Raises WorkerDied when it ends early."""
        headers = response.headers
        headers.append((WORKER_HEADER, worker.encode()))
        self._finish_headers(headers)
        self.started = True
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        whole = response.whole
        if whole is not None and self.body.complete:
            await self._send(start)
            await self._send({"type": "http.response.body", "body": whole})
            return
        await self._send_patiently(start, patience)
        async for piece in response.chunks():
            message = {"type": "http.response.body", "body": piece, "more_body": True}
            await self._send_patiently(message, patience)
        patience.stop()
        await self._end_body()

    async def answer(
        self, status: int, payload: object, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Answer in JSON; also before the body was read."""
        body = orjson.dumps(payload)
        head = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *headers,
        ]
        self._finish_headers(head)
        self.started = True
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        if self.body.complete:
            await self._send({"type": "http.response.body", "body": body})
        else:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
            await self._end_body()

    async def read_json(self) -> dict[str, Any]:
        """Return the object that the body is; empty without a body. Raises BadRequest."""
        await self.body.fill(MAX_JSON)
        text = self.body.take()
        if not self.body.complete or len(text) > MAX_JSON:
            raise BadRequest(f"the body is over {MAX_JSON} bytes; this call needs few")
        try:
            value = orjson.loads(text) if text else {}
        except orjson.JSONDecodeError as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadRequest("the body must be a JSON object")
        return value

    async def fail(self, error: SupervisorError) -> None:
        """Answer with an error in the form that V1 and V2 share.

        That form has a sentence alone, so a header carries the code.
        """
        headers = [
            (name.lower().encode(), value.encode())
            for name, value in problem_headers(error).items()
            if name != "Content-Type"
        ]
        headers.append((ERROR_HEADER, error.code.encode()))
        await self.answer(status_of(error), {"error": str(error)}, headers)

    def _finish_headers(self, headers: list[tuple[bytes, bytes]]) -> None:
        if self._request_id is not None and all(name != REQUEST_ID for name, _ in headers):
            headers.append((REQUEST_ID, self._request_id))
        if not self.body.complete:
            headers.append(_CLOSE)

    async def _send_patiently(self, message: Message, patience: Patience) -> None:
        self.sending = True
        await self._send(message)
        self.sending = False
        patience.moved()

    async def _end_body(self) -> None:
        # Closing while the client still sends would reset the connection before it has read
        # the answer. So what it sends is thrown away for a while.
        if not self.body.complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(LINGER):
                    await self.body.skip()
        await self._send({"type": "http.response.body", "body": b""})
