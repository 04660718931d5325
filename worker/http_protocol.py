"""uvicorn's HTTP protocol, cheaper for small answers and safer against odd clients.

The supervisor serves with it too: it is the second of the two worker files that it imports.

uvicorn writes the head and the body of an answer one by one, and uvloop sends each at once. For
a small prediction the second send costs more than all of the gateway's own work.

uvicorn also loses the body of a request that offers an upgrade, keeps a head of any size in
memory, and writes its word on a malformed request into the answer to the one before.
"""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_JOIN: Final = 64 * 1024  # bytes of a body that are copied to go with the head
_OF_AN_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings"})


class JoiningTransport:
    """Holds back the head of an answer until its body's first write, or the loop's next step."""

    __slots__ = ("_held", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held = b""

    def write(self, data: bytes | memoryview) -> None:
        """Send `data`, with the head that was held back before it."""
        if self._held:
            held, self._held = self._held, b""
            if len(data) <= LARGEST_JOIN:
                self._transport.write(held + data)
            else:
                self._transport.writelines((held, data))
        elif isinstance(data, bytes) and data.startswith(b"HTTP/1."):
            self._held = data
            self._loop.call_soon(self._flush)
        else:
            self._transport.write(data)

    def close(self) -> None:
        """Send what is held back, then close."""
        self._flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Say whether the connection is closed or about to be."""
        return self._transport.is_closing()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def _flush(self) -> None:
        if self._held:
            data, self._held = self._held, b""
            if not self._transport.is_closing():
                self._transport.write(data)


class JoiningProtocol(HttpToolsProtocol):
    """For `uvicorn.Config(http=JoiningProtocol)`."""

    longest_head: ClassVar = 64 * 1024  # bytes; one that comes in a single read may be longer

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._in_head = True  # or between two requests
        self._head_size = 0  # bytes received of a head that is not complete
        self._refusal = b""  # goes out once all that was asked before is answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the joining transport between uvicorn and the connection."""
        joining = JoiningTransport(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", joining))

    def data_received(self, data: bytes) -> None:
        """Parse what came; refuse what is not HTTP, and a head without an end."""
        if self._refusal:
            return
        self._unset_keepalive_if_required()
        if self._in_head:
            self._head_size += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self._refuse("400 Bad Request", "Invalid HTTP request received.")
        except httptools.HttpParserUpgrade as stop:
            self._decline_upgrade(memoryview(data)[stop.args[0] :])
        else:
            if self._head_size > self.longest_head:
                text = f"The request's head is over {self.longest_head} bytes."
                self._refuse("431 Request Header Fields Too Large", text)

    def on_headers_complete(self) -> None:
        """Begin a request, unless it is one whose head is about to be parsed anew."""
        if not self.parser.should_upgrade():
            self._in_head = False
            self._head_size = 0
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        if not self.parser.should_upgrade():
            self._in_head = True
            super().on_message_complete()

    def _decline_upgrade(self, rest: memoryview) -> None:
        """Go on as if nothing but HTTP/1 had been offered; `rest` is what follows the head.

        The parser takes all behind the head of an upgrade for another protocol, and so would
        lose the body. A client that offers HTTP/2 in passing, as many do, sends one.
        """
        while True:
            if self.parser.get_method() == b"CONNECT":
                self._refuse("400 Bad Request", "This is no proxy.")
                return
            head = self._head_without_upgrade()
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            try:
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except httptools.HttpParserError:
                self._refuse("400 Bad Request", "Invalid HTTP request received.")
            except httptools.HttpParserUpgrade as stop:
                rest = rest[stop.args[0] :]
                continue
            return

    def _head_without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                kept = b", ".join(t for t in tokens if t.lower() not in _OF_AN_UPGRADE)
                lines.append(b"connection: " + kept)
            elif name not in _OF_AN_UPGRADE:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def _refuse(self, status: str, text: str) -> None:
        """Answer what cannot be parsed once all before it is answered, and close.

        Only a request whose own body is at fault, and whose answer has begun, gets nothing but
        the end of the connection: the client would take this for a part of that answer.
        """
        head = (
            f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(text)}\r\nconnection: close\r\n\r\n"
        )
        self._refusal = (head + text).encode()
        cycle = self.cycle
        if cycle is not None and not self._in_head:  # its body is at fault
            if self.pipeline and self.pipeline[0][0] is cycle:
                self.pipeline.popleft()  # the newest; its turn has not come
            else:
                self._end(silently=cycle.response_started)
        elif cycle is None or cycle.response_complete:
            self._end()

    def _end(self, *, silently: bool = False) -> None:
        if not silently:
            self.transport.write(self._refusal)
        self.transport.close()

    def on_response_complete(self) -> None:
        """Go on with the next request, or end with the refusal that is due."""
        last = not self.pipeline
        super().on_response_complete()
        if self._refusal and last and not self.transport.is_closing():
            self._end()
