"""One keep-alive connection to a worker, and the answer that arrives on it.

Memory is bounded in both directions: writing waits for the transport, and reading pauses while
more than MAX_HELD bytes of an answer wait for their reader.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, cast

import httptools

from ..errors import Invalid, WorkerDied
from .http_headers import HOP_BY_HOP, NOT_TO_CLIENT, NameTable, connection_tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_HELD: Final = 256 * 1024  # bytes of an answer that may wait for their reader
MAX_HEAD: Final = 64 * 1024  # bytes of an answer's head
SMALL_DIGITS: Final = 5  # of the content-length of an answer that is handed out whole
OK: Final = 200  # the first status that is an answer; those below are interim
ONE_WRITE: Final = 64 * 1024  # bytes up to which head and body are joined for one write

_to_client = NameTable(NOT_TO_CLIENT)


class NoAnswer(WorkerDied):
    """The connection ended before the first byte of an answer."""


class Pool(Protocol):
    """What a connection tells its owner."""

    def released(self, connection: Connection) -> None:
        """Take the connection back: its exchange is over and it can carry another one."""
        ...

    def lost(self, connection: Connection) -> None:
        """Forget the connection: it is closed."""
        ...


class Response:
    """A worker's answer whose head has arrived."""

    def __init__(
        self, connection: Connection, status: int, headers: list[tuple[bytes, bytes]]
    ) -> None:
        self.status = status
        self.headers = headers
        self._connection: Connection | None = connection
        self._pieces: deque[bytes] = deque()
        self._held = 0  # bytes in _pieces
        self._error: WorkerDied | None = None
        self._news: asyncio.Future[None] | None = None

    @property
    def whole(self) -> bytes | None:
        """What is left to read of the body, once all of it has arrived; before that None."""
        if self._connection is not None or self._error is not None:
            return None
        return b"".join(self._pieces) if len(self._pieces) != 1 else self._pieces[0]

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises WorkerDied when it ends early."""
        while True:
            if self._pieces:
                piece = self._pieces.popleft()
                self._held -= len(piece)
                if self._connection is not None and self._held <= MAX_HELD:
                    self._connection.resume_reading()
                yield piece
            elif self._error is not None:
                raise self._error
            elif self._connection is None:
                return
            else:
                self._news = asyncio.get_running_loop().create_future()
                await self._news

    def close(self) -> None:
        """Give up the rest of the answer; the connection is not used again."""
        if self._connection is not None:
            self._connection.abort()

    def add(self, piece: bytes) -> bool:
        """Take in a piece of the body; say whether too much now waits."""
        self._pieces.append(piece)
        self._held += len(piece)
        self._tell()
        return self._held > MAX_HELD

    def end(self, error: WorkerDied | None = None) -> None:
        """Note that no more will come, because of `error` if there is one."""
        self._connection = None
        self._error = error
        self._tell()

    def _tell(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)


class Connection(asyncio.Protocol):
    """Carries one exchange at a time; it is aborted whenever its state is not surely clean."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._writable: asyncio.Future[None] | None = None  # set while writing must wait
        self._lost = False
        self._answer: asyncio.Future[Response] | None = None
        self._response: Response | None = None
        self._sent = False  # the whole request is written
        self._heard = 0  # bytes of this answer up to the end of its head
        self._complete = False
        self._small = False  # the answer is worth waiting for as a whole
        self._reading_paused = False
        self._headers: list[tuple[bytes, bytes]] = []
        self._named: frozenset[bytes] = frozenset()  # by the answer's Connection header

    async def exchange(self, head: bytes, body: bytes) -> Response:
        """Send a whole request and return once the head of its answer is here.

        Raises NoAnswer if nothing was heard, else WorkerDied.
        """
        transport, answer = self._begin()
        if len(body) <= ONE_WRITE:
            transport.write(head + body)
        else:
            transport.writelines((head, body))
        self._sent = True
        try:
            return await answer
        except asyncio.CancelledError:
            self._abandon(answer)
            raise

    async def exchange_streaming(
        self, head: bytes, body: bytes, more: AsyncIterator[bytes], length: int | None
    ) -> Response:
        """Send a request piece by piece and return once the head of its answer is here.

        `length` is what the head has promised, None for chunks. An answer that comes before the
        whole request was sent ends the sending. What `more` raises is raised here.
        """
        transport, answer = self._begin()
        transport.write(head)
        sender = self._loop.create_task(self._send(body, more, length))
        try:
            await asyncio.wait((sender, answer), return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                await sender
            return await answer
        except BaseException:
            self._abandon(answer)
            raise
        finally:
            await _stop(sender)

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        self._fail(None)

    def resume_reading(self) -> None:
        """Read on after a pause."""
        if self._reading_paused and self._transport is not None and not self._lost:
            self._reading_paused = False
            self._transport.resume_reading()

    @property
    def usable(self) -> bool:
        """Whether a new exchange may begin."""
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    # -- sending

    def _begin(self) -> tuple[asyncio.Transport, asyncio.Future[Response]]:
        if self._transport is None or not self.usable:
            raise NoAnswer("the connection to the worker is closed; ask again in a moment")
        self._answer = answer = self._loop.create_future()
        self._response = None
        self._sent = self._complete = False
        self._heard = 0
        return self._transport, answer

    def _abandon(self, answer: asyncio.Future[Response]) -> None:
        # Once its answer is complete the connection may already carry another exchange.
        if self._answer is answer:
            self.abort()

    async def _send(self, body: bytes, more: AsyncIterator[bytes], length: int | None) -> None:
        left = length
        self._sent = left == 0
        async for piece in _joined(body, more):
            if left is not None:
                left -= len(piece)
                if left < 0:
                    break
            await self._write(piece, left)
        if left is None:
            self._put((b"0\r\n\r\n",))
            self._sent = True
        elif left:
            raise Invalid(f"the body is not of the {length} bytes that its content-length promises")

    async def _write(self, piece: bytes, left: int | None) -> None:
        if left is None:
            self._put((b"%x\r\n" % len(piece), piece, b"\r\n"))
        else:
            self._put((piece,))
            self._sent = left == 0
        if self._writable is not None:
            await self._writable

    def _put(self, pieces: tuple[bytes, ...]) -> None:
        if self._transport is not None and not self._lost:
            self._transport.writelines(pieces)

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def pause_writing(self) -> None:
        """Make the sender wait: the worker reads slower than we write."""
        self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let the sender go on."""
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    def data_received(self, data: bytes) -> None:
        """Parse what came; bytes that nobody asked for end the connection."""
        if self._answer is None:
            self.abort()
            return
        if self._response is None:
            self._heard += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade, Invalid) as error:
            self._fail(WorkerDied(f"the worker's answer is not HTTP ({error}); restart the model"))
            return
        if self._response is not None:
            self._deliver(self._response)
        elif self._heard > MAX_HEAD:
            self._fail(WorkerDied(f"the head of the worker's answer is over {MAX_HEAD} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell those who wait."""
        self._end(None)

    def _fail(self, error: WorkerDied | None) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(error)

    def _end(self, error: WorkerDied | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._pool.lost(self)
        self.resume_writing()
        if self._response is not None:
            self._response.end(error or WorkerDied("the worker ended in the middle of its answer"))
        if self._answer is not None and not self._answer.done():
            kind = WorkerDied if self._heard else NoAnswer
            ended = kind("the worker ended before it answered; ask again in a moment")
            self._answer.set_exception(error or ended)
            self._answer.exception()  # it may be that nobody waits any more

    # -- httptools

    def on_message_begin(self) -> None:
        """Refuse to keep a connection on which a second answer follows the one asked for."""
        if self._complete:
            self._sent = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header unless it is of this hop only."""
        passed = _to_client[name]
        if passed:
            self._headers.append((passed, value))
        elif name.lower() == b"connection":
            self._named |= connection_tokens(value) - {b"close", b"keep-alive"}

    def on_headers_complete(self) -> None:
        """Make the response, unless this is an interim one (1xx)."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        named, self._named = self._named, frozenset()
        if status >= OK and not self._complete:
            if named:
                headers = [h for h in headers if h[0] not in named | HOP_BY_HOP]
            self._response = Response(self, status, headers)
            self._small = any(
                name == b"content-length" and len(value) <= SMALL_DIGITS for name, value in headers
            )

    def on_body(self, body: bytes) -> None:
        """Hand a piece to the response; pause when its reader is behind."""
        if self._response is not None and not self._complete and self._response.add(body):
            self._pause_reading()

    def on_message_complete(self) -> None:
        """Note the end of the answer."""
        if self._response is not None:
            self._complete = True
            if not self._parser.should_keep_alive():
                self._sent = False

    def _pause_reading(self) -> None:
        if not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()

    def _deliver(self, response: Response) -> None:
        answer = self._answer
        if self._complete:
            response.end()
            self._response = self._answer = None
            if self._sent:
                self.resume_reading()
                self._pool.released(self)
            else:
                self.abort()
        elif self._small:
            return  # the rest is about to come; whole it costs the client's side far less
        if answer is not None and not answer.done():
            answer.set_result(response)


async def _joined(first: bytes, more: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for piece in more:
        if piece:
            yield piece


async def _stop(task: asyncio.Task[None]) -> None:
    """End the sending; what it raises after the answer is here matters to nobody."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()
