"""The probes: whether the supervisor lives, and whether requests are welcome."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypedDict

from .asgi import answer_json, answer_problem
from .operations import JSON_TYPE, Operation
from .problem import MethodNotAllowed

if TYPE_CHECKING:
    from .asgi import Receive, Scope, Send

_METHODS: Final = ("GET", "HEAD")


class Alive(TypedDict):
    """The supervisor lives."""

    status: Literal["ok"]


class Readiness(TypedDict):
    """Whether requests are welcome, or why not."""

    status: Literal["ready", "restoring", "stopping"]


PROBES: Final = (
    Operation(
        method="GET",
        path="/healthz",
        name="healthz",
        summary="Whether the supervisor lives.",
        tag="probes",
        answers={200: {JSON_TYPE: Alive}},
    ),
    Operation(
        method="GET",
        path="/readyz",
        name="readyz",
        summary="Whether requests are welcome.",
        tag="probes",
        answers={200: {JSON_TYPE: Readiness}, 503: {JSON_TYPE: Readiness}},
    ),
)
_PATHS: Final = frozenset(probe.path for probe in PROBES)


class Health(Protocol):
    """What the probes ask."""

    def obstacle(self) -> str | None:
        """Return why requests should not be sent here: "restoring", "stopping", or None."""
        ...


class Probes:
    """Answers the probes; no thread is needed, so they answer also when all are busy."""

    def __init__(self, health: Health) -> None:
        self._health = health

    def takes(self, scope: Scope) -> bool:
        """Say whether a request is for it."""
        return scope["path"] in _PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that it takes."""
        if scope["method"] not in _METHODS:
            what = f"{scope['path']} takes GET, not {scope['method']}"
            await answer_problem(send, MethodNotAllowed(what, allow=_METHODS))
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
