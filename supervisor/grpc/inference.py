"""The service of KServe V2: infer, and the questions about server and models."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf import json_format

from ..errors import Stopping, SupervisorError
from ..http.routes import Kind, Route
from .calls import Call, detail, log_unexpected, parsed, route_to
from .infer import SCHEMA, from_worker, to_worker
from .worker_body import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..http.model_info import ModelInfo
    from .calls import Handler
    from .workers import Workers

SERVICE: Final = "inference.GRPCInferenceService"

_PATH: Final = b"/v2/infer"
_messages: Final = SCHEMA.messages


class Inference:
    """Handlers by the name of their method."""

    def __init__(self, workers: Workers, info: ModelInfo) -> None:
        self._workers = workers
        self._info = info
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.handlers: Mapping[str, Handler] = {
            "ServerLive": self._asks(Kind.V2_SERVER_LIVE, "ServerLiveResponse"),
            "ServerReady": self._asks(Kind.V2_SERVER_READY, "ServerReadyResponse"),
            "ServerMetadata": self._asks(Kind.V2_SERVER, "ServerMetadataResponse"),
            "ModelReady": self._asks_of_model(Kind.V2_READY, "ModelReadyResponse"),
            "ModelMetadata": self._asks_of_model(Kind.V2_METADATA, "ModelMetadataResponse"),
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "ModelInfer": self.infer,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }

    def close(self) -> None:
        """End the streams that wait for their client."""
        if not self._closing.done():
            self._closing.set_result(None)

    async def infer(self, request: Any, call: Call) -> Any:
        """Answer a ModelInferRequest."""
        version = request.model_version or None
        route = call.route_to(Kind.V2_INFER, request.model_name, version)
        headers, body = to_worker(request)
        reply = await self._workers.post(route, _PATH, [*headers, *call.headers], body)
        call.note(reply)
        return from_worker(request, decode(reply.headers, reply.body))

    async def stream(self, _: object, context: Any) -> None:
        """Answer the requests of a stream, one after the other; an error is an answer too."""
        try:
            while (data := await self._next(context)) is not grpc.aio.EOF:
                request = parsed(_messages.ModelInferRequest, data)
                await context.write(await self._answer(request, Call(context)))
        except SupervisorError as error:
            await Call(context).fail(error)

    async def _answer(self, request: Any, call: Call) -> Any:
        response = _messages.ModelStreamInferResponse()
        try:
            response.infer_response.CopyFrom(await self.infer(request, call))
        except Exception as error:
            log_unexpected(error)
            response.error_message = detail(error)
            response.infer_response.id = request.id
        return response

    async def _next(self, context: Any) -> Any:
        """Return the stream's next request, EOF after the last. Raises Stopping."""
        reading = asyncio.ensure_future(context.read())
        try:
            await asyncio.wait((reading, self._closing), return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return reading.result()
        finally:
            reading.cancel()
        raise Stopping("the supervisor is stopping; it takes nothing more on this stream")

    def _asks(self, kind: Kind, response: str) -> Handler:
        """Return a handler whose answer is that of HTTP."""

        async def answer(request: Any, call: Call) -> Any:
            return await self._told(Route(kind), call, response)

        return answer

    def _asks_of_model(self, kind: Kind, response: str) -> Handler:
        async def answer(request: Any, call: Call) -> Any:
            route = route_to(kind, request.name, request.version or None)
            return await self._told(route, call, response)

        return answer

    async def _told(self, route: Route, call: Call, response: str) -> Any:
        _, payload = await self._info.answer(route, call)
        return _parsed(payload, response)

    async def _statistics(self, request: Any, call: Call) -> Any:
        route = Route(Kind.V2_STATISTICS)
        if request.name:
            route = route_to(Kind.V2_STATISTICS, request.name, request.version or None)
        return await self._told(route, call, "ModelStatisticsResponse")

    async def _config(self, request: Any, call: Call) -> Any:
        route = route_to(Kind.V2_CONFIG, request.name, request.version or None)
        _, payload = await self._info.answer(route, call)
        return _parsed({"config": payload}, "ModelConfigResponse")

    async def _index(self, request: Any, call: Call) -> Any:
        call.wish = {"ready": request.ready}
        _, payload = await self._info.answer(Route(Kind.V2_INDEX), call)
        return _parsed({"models": payload}, "RepositoryIndexResponse")

    async def _load(self, request: Any, call: Call) -> Any:
        call.wish = {"parameters": dict.fromkeys(request.parameters, True)}
        await self._info.answer(route_to(Kind.V2_LOAD, request.model_name), call)
        return _messages.RepositoryModelLoadResponse()

    async def _unload(self, request: Any, call: Call) -> Any:
        await self._info.answer(route_to(Kind.V2_UNLOAD, request.model_name), call)
        return _messages.RepositoryModelUnloadResponse()


def _parsed(payload: Any, message: str) -> Any:
    """Return what HTTP tells as a message, which may have fewer fields."""
    return json_format.ParseDict(payload, getattr(_messages, message)(), ignore_unknown_fields=True)
