"""What endless answers share: they end with their client, or with the supervisor."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from .asgi import Receive, Scope


async def until_over(
    work: Coroutine[Any, Any, None], receive: Receive, ended: asyncio.Event
) -> None:
    """Run `work` until it ends, the client goes, or `ended` is set. Raises what it raises."""
    tasks: list[asyncio.Task[Any]] = [
        asyncio.ensure_future(work),
        asyncio.ensure_future(_client_gone(receive)),
        asyncio.ensure_future(ended.wait()),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


def query_of(scope: Scope) -> dict[str, str]:
    """Return the query parameters; the last of those that come twice."""
    return dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
