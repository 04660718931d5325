"""The few words of ASGI that the applications here share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any

import orjson

from .problem import problem, problem_headers, status_of

Message = MutableMapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


async def answer_json(
    send: Send, status: int, body: Any, headers: Mapping[str, str] | None = None
) -> None:
    """Send a whole JSON answer."""
    whole = {"Content-Type": "application/json", **(headers or {})}
    await _answer(send, status, whole, orjson.dumps(body))


async def answer_problem(send: Send, error: BaseException) -> None:
    """Send an error as an RFC 9457 problem."""
    await _answer(send, status_of(error), problem_headers(error), orjson.dumps(problem(error)))


def encode_headers(headers: Mapping[str, str]) -> Iterable[tuple[bytes, bytes]]:
    """Return headers in the form of ASGI."""
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


async def _answer(send: Send, status: int, headers: Mapping[str, str], body: bytes) -> None:
    whole = {**headers, "Content-Length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": encode_headers(whole)})
    await send({"type": "http.response.body", "body": body})
