"""Keep-alive HTTP connections to one worker: what the fleet calls an upstream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from modelsup.worker.contract import SECRET_HEADER

from ..errors import NotSent, WorkerDied
from .http_connection import Connection, NoAnswer, Response
from .http_headers import declared_length, request_head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .http_headers import Headers

MAX_IDLE: Final = 64  # connections kept open for the next request


class HttpUpstream:
    """A pool of connections to the worker at `host`:`port`; `secret` goes with every request.

    Belongs to the event loop it is used on. There are as many connections as there are exchanges
    at once; an idle one is used again, the youngest first.
    """

    def __init__(self, host: str, port: int, secret: str) -> None:
        self._host = host
        self._port = port
        self._own = f" HTTP/1.1\r\nhost: {host}:{port}\r\n{SECRET_HEADER}: {secret}\r\n".encode()
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._closed = False
        self.refused = False  # nobody listened at the last try to connect

    async def exchange(
        self,
        method: bytes,
        path: bytes,
        headers: Headers,
        body: bytes,
        more: AsyncIterator[bytes] | None,
    ) -> Response:
        """Send one request and return once the head of its answer is here.

        `body` is all of it when `more` is None, else its beginning. Not for HEAD. Raises
        WorkerDied when the worker is not reachable or ends the connection first, NotSent if it
        surely has seen nothing of the request, Invalid for headers that cannot be sent. Cancelling
        it closes the connection.
        """
        start = method + b" " + path + self._own
        if more is not None:
            return await self._exchange_streaming(start, headers, body, more)
        head = request_head(start, headers, len(body))
        if not self._idle:
            return await (await self._connect()).exchange(head, body)
        try:
            return await self._idle.pop().exchange(head, body)
        except NoAnswer:  # the worker closed it while it was idle, or died of the request
            try:
                connection = await self._connect()
            except NotSent as error:
                raise WorkerDied(str(error)) from error
        return await connection.exchange(head, body)

    def close(self) -> None:
        """Close all connections; those who wait for an answer get WorkerDied."""
        self._closed = True
        for connection in tuple(self._open):
            connection.abort()

    def released(self, connection: Connection) -> None:
        """Keep a connection for the next exchange."""
        if len(self._idle) < MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.abort()

    def lost(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def _exchange_streaming(
        self, start: bytes, headers: Headers, body: bytes, more: AsyncIterator[bytes]
    ) -> Response:
        length = declared_length(headers)
        head = request_head(start, headers, length)
        # A body that cannot be sent twice does not risk an idle connection, which may be dead.
        connection = await self._connect()
        return await connection.exchange_streaming(head, body, more, length)

    async def _connect(self) -> Connection:
        if self._closed:
            raise NotSent("the worker is stopping; ask again in a moment")
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(self), self._host, self._port
            )
        except OSError as error:
            self.refused = isinstance(error, ConnectionRefusedError)
            raise NotSent(
                f"the worker takes no connection ({error.strerror or error}); ask again in a moment"
            ) from error
        self.refused = False
        if self._closed or not connection.usable:
            connection.abort()
        else:
            self._open.add(connection)
        return connection
