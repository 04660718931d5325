"""The gRPC server: which services it has, and how it begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio

from ..http.model_info import ModelInfo
from ..http.problem import NotFound
from . import inference, serving
from .calls import unary
from .infer import SCHEMA as INFERENCE
from .predict import SCHEMA as SERVING
from .schema import read_schema
from .workers import Workers

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..http.gateway import Limits
    from ..http.probes import Health
    from ..http.router import Router
    from ..http.routes import Route
    from .calls import Call, Handler
    from .schema import Rpc, Schema

HEALTH: Final = read_schema("health.proto")
HEALTH_SERVICE: Final = "grpc.health.v1.Health"

HELD_BODIES: Final = 4  # requests of the largest size that may be under way at a time
KEEPALIVE: Final = (  # milliseconds; clients may ask for a sign of life as often as every 5 s
    ("grpc.keepalive_time_ms", 60_000),  # until a silent client is asked for one
    ("grpc.keepalive_timeout_ms", 20_000),  # until it counts as gone
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
)

_LARGEST: Final = 2**31 - 1  # bytes that gRPC can put into one message


class CannotListen(Exception):
    """The address cannot be listened on."""


class GrpcServer:
    """Serves predictions over gRPC on the running event loop. Raises CannotListen.

    `address` is HOST:PORT; `port` is the one it got.
    """

    def __init__(self, address: str, router: Router, limits: Limits, health: Health) -> None:
        self._health = health
        most_held = HELD_BODIES * limits.max_body_size
        workers = Workers(router, limits.request_timeout, most_held)
        info = _model_info(router, workers, limits)
        self._inference = inference.Inference(workers, info)
        self._server = grpc.aio.server(
            options=(
                ("grpc.so_reuseport", 0),  # two supervisors must not share a port
                ("grpc.max_receive_message_length", min(limits.max_body_size, _LARGEST)),
                ("grpc.max_send_message_length", -1),
                *KEEPALIVE,
            )
        )
        served: dict[str, tuple[Schema, Mapping[str, Handler]]] = {
            inference.SERVICE: (INFERENCE, self._inference.handlers),
            HEALTH_SERVICE: (HEALTH, {"Check": self._check}),
        }
        for name, handlers in serving.Serving(workers, info, limits.max_body_size).handlers.items():
            served[name] = (SERVING, handlers)
        self._services = frozenset(served)
        self._server.add_generic_rpc_handlers(
            tuple(self._generic(name, *service) for name, service in served.items())
        )
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise CannotListen(str(error)) from error

    async def start(self) -> None:
        """Take calls."""
        await self._server.start()

    async def close(self, grace: float) -> None:
        """Take no more calls; let those under way finish, within `grace` seconds."""
        self._inference.close()
        await self._server.stop(grace)

    def _generic(self, name: str, schema: Schema, handlers: Mapping[str, Handler]) -> Any:
        methods = {rpc.name: self._method(rpc, handlers) for rpc in schema.services[name]}
        return grpc.method_handlers_generic_handler(name, methods)

    def _method(self, rpc: Rpc, handlers: Mapping[str, Handler]) -> Any:
        make = grpc.unary_unary_rpc_method_handler
        if rpc.streaming:
            make = grpc.stream_stream_rpc_method_handler
        return make(
            self._inference.stream if rpc.streaming else unary(handlers[rpc.name], rpc.request),
            response_serializer=rpc.response.SerializeToString,
        )

    async def _check(self, request: Any, call: Call) -> Any:
        """Say whether requests are welcome."""
        if request.service not in {"", *self._services}:
            raise NotFound(f"there is no service {request.service!r} here")
        status = "SERVING" if self._health.obstacle() is None else "NOT_SERVING"
        return HEALTH.messages.HealthCheckResponse(status=status)


def _model_info(router: Router, workers: Workers, limits: Limits) -> ModelInfo:
    async def ensure_ready(route: Route, _: Any) -> None:
        await workers.signatures(route)

    return ModelInfo(
        router, ensure_ready, autoload=limits.autoload, max_batch_size=limits.max_batch_size
    )
