"""One gRPC call: what its handler knows of it, and how its errors are told."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import DecodeError

from ..domain import NAME
from ..errors import Invalid, SupervisorError, UnknownModel
from ..http.problem import BadRequest, retry_after_of, status_of
from ..http.routes import Route

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..http.routes import Kind
    from .workers import Reply

    Handler = Callable[[Any, "Call"], Awaitable[Any]]

CODES: Final = {  # by HTTP status
    400: grpc.StatusCode.INVALID_ARGUMENT,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    405: grpc.StatusCode.UNIMPLEMENTED,
    406: grpc.StatusCode.INVALID_ARGUMENT,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    415: grpc.StatusCode.INVALID_ARGUMENT,
    422: grpc.StatusCode.INVALID_ARGUMENT,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    500: grpc.StatusCode.INTERNAL,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}
WORKER_KEY: Final = "x-modelsup-worker"
CLIENT_KEY: Final = "x-modelsup-client"
ERROR_KEY: Final = "x-modelsup-error"
REQUEST_ID: Final = "x-request-id"
LONGEST_DETAIL: Final = 2000  # bytes; a client refuses metadata of more than 8 KiB, encoded

_TO_WORKER: Final = frozenset({REQUEST_ID, "traceparent", "tracestate"})
_INTERNAL: Final = "the supervisor failed at this request; its log has the traceback"

_logger = logging.getLogger(__name__)


class WorkerRefused(Exception):
    """A worker answered with an error. `status` is that of HTTP."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.error)
        self.status = reply.status


class Call:
    """What belongs together for the time of one call; `wish` is what HTTP has as a JSON body.

    `headers` are those of the client that go on to a worker; `client` is the name under which it
    holds a model, "" where it names none.
    """

    __slots__ = ("_context", "_trailing", "client", "headers", "wish")

    def __init__(self, context: Any) -> None:
        self.wish: dict[str, Any] = {}
        self._context = context
        metadata = [(k, v) for k, v in context.invocation_metadata() or () if isinstance(v, str)]
        self.client = next((value for key, value in metadata if key == CLIENT_KEY), "")
        passed = [(key, value) for key, value in metadata if key in _TO_WORKER]
        self.headers = [(key.encode(), value.encode()) for key, value in passed]
        self._trailing = [(key, value) for key, value in passed if key == REQUEST_ID]

    def route_to(
        self, kind: Kind, model: str, version: str | None = None, label: str | None = None
    ) -> Route:
        """Return the route of a prediction: to a model, or to the client's current one.

        Raises Invalid where both are named.
        """
        if not self.client:
            return route_to(kind, model, version, label)
        if model or version or label:
            raise Invalid(
                f"the call names model {model!r} and, as {CLIENT_KEY}, a client; leave out one: "
                "with a client, name and version of the model stay empty"
            )
        return Route(kind, client=self.client)

    async def read_json(self) -> dict[str, Any]:
        """Return the wish."""
        return self.wish

    def note(self, reply: Reply) -> None:
        """Tell the client which worker answered. Raises WorkerRefused where that was an error."""
        self._trailing.append((WORKER_KEY, reply.worker))
        if reply.status != 200:
            raise WorkerRefused(reply)

    def finish(self) -> None:
        """Send with the answer what was noted."""
        if self._trailing:
            self._context.set_trailing_metadata(tuple(self._trailing))

    async def fail(self, error: Exception) -> None:
        """End the call with an error."""
        if isinstance(error, SupervisorError):
            self._trailing.append((ERROR_KEY, error.code))
            if (seconds := retry_after_of(error)) is not None:
                self._trailing.append(("retry-after", str(math.ceil(seconds))))
        await self._context.abort(code_of(error), detail(error), tuple(self._trailing))


def code_of(error: Exception) -> grpc.StatusCode:
    """Return the gRPC code of an error."""
    return CODES[error.status if isinstance(error, WorkerRefused) else status_of(error)]


def detail(error: Exception) -> str:
    """Return what a client is told of an error: nothing of one that is not meant for it."""
    text = str(error) if isinstance(error, SupervisorError | WorkerRefused) else _INTERNAL
    return text.encode()[:LONGEST_DETAIL].decode(errors="ignore")


def unary(handler: Handler, message: Any) -> Callable[[bytes, Any], Awaitable[Any]]:
    """Return `handler` in the form that gRPC calls, with its errors told to the client.

    `message` is the class of its request.
    """

    async def answer(data: bytes, context: Any) -> Any:
        call = Call(context)
        try:
            response = await handler(parsed(message, data), call)
        except Exception as error:
            log_unexpected(error)
            await call.fail(error)
        else:
            call.finish()
            return response

    return answer


def parsed(message: Any, data: bytes) -> Any:
    """Return the message in `data`. Raises BadRequest where there is none.

    Where gRPC does it itself, what a client got wrong counts as an error of ours.
    """
    try:
        return message.FromString(data)
    except DecodeError as error:
        name = message.DESCRIPTOR.full_name
        raise BadRequest(f"what was sent is no {name}; are the stubs the right ones?") from error


def log_unexpected(error: Exception) -> None:
    """Log an error of ours, with its traceback."""
    if not isinstance(error, SupervisorError | WorkerRefused):
        _logger.error("call failed", exc_info=error)


def route_to(kind: Kind, model: str, version: str | None = None, label: str | None = None) -> Route:
    """Return the route of a call. Raises UnknownModel for a name that none can have."""
    if any(name is not None and not NAME.fullmatch(name) for name in (model, version, label)):
        named = " ".join(repr(name) for name in (model, version, label) if name is not None)
        raise UnknownModel(f"no model can be called {named}; see the names that modelsup ps shows")
    return Route(kind, model, version=version, label=label)
