"""uvicorn's HTTP protocol with one system call per small answer instead of two.

The supervisor serves with it too: it is the second of the two worker files that it imports.

uvicorn writes the head and the body of an answer one by one, and uvloop sends each at once. For
a small prediction the second send costs more than all of the gateway's own work.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

LARGEST_JOIN: Final = 64 * 1024  # bytes of a body that are copied to go with the head


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

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the joining transport between uvicorn and the connection."""
        joining = JoiningTransport(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.Transport", joining))
