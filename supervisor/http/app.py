"""The one ASGI application of the supervisor's port: it hands each request to its part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from .control_gate import ControlGate
from .probes import Probes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .asgi import Application, Receive, Scope, Send
    from .control import Control
    from .probes import Health

_PREDICTIONS: Final = frozenset({"v1", "v2", "clients"})  # first parts of a path


class Stream(Protocol):
    """An application for answers that go on: followed logs, events."""

    def takes(self, scope: Scope) -> bool:
        """Say whether a request is for it."""
        ...

    def close(self) -> None:
        """End all its answers."""
        ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that it takes."""
        ...


class App:
    """Hands predictions to the gateway, what is followed to the streams, the rest to Flask."""

    def __init__(
        self, gateway: Application, control: Control, streams: Sequence[Stream], health: Health
    ) -> None:
        self._gateway = gateway
        self._control = ControlGate(control)
        self._streams = streams
        self._probes = Probes(health)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, or the server's start and end."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        else:
            await self._route(scope)(scope, receive, send)

    async def close(self) -> None:
        """End what is followed, answer waiting control calls with `stopping`, end the threads.

        Call it before the server stops: the server waits for open requests.
        """
        for stream in self._streams:
            stream.close()
        await self._control.close()

    def _route(self, scope: Scope) -> Application:
        path = scope["path"]
        if path.lstrip("/").partition("/")[0] in _PREDICTIONS:
            return self._gateway
        if self._probes.takes(scope):
            return self._probes
        taking = (stream for stream in self._streams if stream.takes(scope))
        return next(taking, self._control)


def create_app(
    gateway: Application, control: Control, streams: Sequence[Stream], health: Health
) -> App:
    """Return the application of the supervisor's port."""
    return App(gateway, control, streams, health)


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
