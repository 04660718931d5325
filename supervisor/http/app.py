"""The one ASGI application of the supervisor's port: it hands each request to its part."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from .asgi import answer_json, answer_problem
from .control_gate import ControlGate
from .problem import MethodNotAllowed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .asgi import Application, Receive, Scope, Send
    from .control import Control

_PREDICTIONS: Final = frozenset({"v1", "v2", "clients"})  # first parts of a path
_PROBES: Final = frozenset({"/healthz", "/readyz"})
_PROBE_METHODS: Final = ("GET", "HEAD")


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


class Health(Protocol):
    """What the probes ask."""

    def obstacle(self) -> str | None:
        """Return why requests should not be sent here: "restoring", "stopping", or None."""
        ...


class App:
    """Hands predictions to the gateway, what is followed to the streams, the rest to Flask."""

    def __init__(
        self, gateway: Application, control: Control, streams: Sequence[Stream], health: Health
    ) -> None:
        self._gateway = gateway
        self._control = ControlGate(control)
        self._streams = streams
        self._health = health

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
        if path in _PROBES:
            return self._probe
        taking = (stream for stream in self._streams if stream.takes(scope))
        return next(taking, self._control)

    async def _probe(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in _PROBE_METHODS:
            what = f"{scope['path']} takes GET, not {scope['method']}"
            await answer_problem(send, MethodNotAllowed(what, allow=_PROBE_METHODS))
        elif scope["path"] == "/healthz":
            await answer_json(send, HTTPStatus.OK, {"status": "ok"})
        else:
            await self._readiness(send)

    async def _readiness(self, send: Send) -> None:
        obstacle = self._health.obstacle()
        if obstacle is None:
            await answer_json(send, HTTPStatus.OK, {"status": "ready"})
        else:
            await answer_json(
                send, HTTPStatus.SERVICE_UNAVAILABLE, {"status": obstacle}, {"Retry-After": "1"}
            )


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
