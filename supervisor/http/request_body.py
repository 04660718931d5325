"""The body of a client's request: read piece by piece, never over its limit, never parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import TooLarge

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping

    Message = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]


# Bytes of a body that are read before a worker is taken, and may wait here for that. One that is
# not larger can be sent again to another worker.
HELD: Final = 1024 * 1024


class ClientGone(Exception):
    """The client has closed its connection: nobody waits for an answer any more."""


class RequestBody:
    """Reads the body of one request.

    `limit` is in bytes. `declared` is the length that the head promises, None for chunks.
    `complete` says whether all has been read, `waiting` whether the client is being waited for.
    """

    __slots__ = (
        "_limit",
        "_on_complete",
        "_pieces",
        "_receive",
        "_size",
        "complete",
        "declared",
        "waiting",
    )

    def __init__(self, receive: Receive, declared: int | None, limit: int) -> None:
        self._receive = receive
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0  # bytes received so far
        self._on_complete: Callable[[], None] | None = None
        self.declared = declared
        self.complete = declared == 0
        self.waiting = False

    def check_declared(self) -> None:
        """Raise TooLarge when the head promises more than the limit."""
        if self.declared is not None and self.declared > self._limit:
            raise self._too_large()

    def when_complete(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the body, which is not complete yet, is."""
        self._on_complete = callback

    async def fill(self, size: int) -> None:
        """Read until the body is complete or `size` bytes of it are held."""
        while not self.complete and self._size < size:
            self.waiting = True
            self._pieces.append(self._accept(await self._receive()))

    def take(self) -> bytes:
        """Return what was read so far and hold it no longer."""
        pieces, self._pieces = self._pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def rest(self) -> AsyncIterator[bytes]:
        """Yield what has not been read yet. Raises ClientGone or TooLarge."""
        while not self.complete:
            self.waiting = True
            yield self._accept(await self._receive())

    async def skip(self) -> None:
        """Read the rest and keep nothing. Returns also when the client goes."""
        while not self.complete:
            message = await self._receive()
            self.complete = not message.get("more_body", False)

    async def client_gone(self) -> None:
        """Return once the client has gone. Only for a complete body."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def _accept(self, message: Message) -> bytes:
        if message["type"] == "http.disconnect":
            raise ClientGone
        self.waiting = False
        piece: bytes = message.get("body", b"")
        self._size += len(piece)
        if self._size > self._limit:
            raise self._too_large()
        self.complete = not message.get("more_body", False)
        if self.complete and self._on_complete is not None:
            self._on_complete()
        return piece

    def _too_large(self) -> TooLarge:
        return TooLarge(
            f"the body is over the limit of {self._limit} bytes; send less in one request, "
            "or raise the setting max_body_size"
        )
