"""The worker's HTTP side: predictions for the supervisor's gateway, on an inherited socket."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
import uvicorn
import uvicorn.lifespan.off
import uvicorn.loops.uvloop  # else each worker imports these two, and is ready 8 ms later
from uvicorn.server import ServerState

from .batch_rules import BatchRules
from .batching import Batcher, CallFailed
from .codecs import compression
from .codecs.base import BadInput
from .contract import SECRET_HEADER
from .forms import Forms, Reply
from .http_protocol import JoiningProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable, Generator, MutableMapping

    from .codecs.base import Body, Request
    from .contract import LaunchSpec
    from .forms import Form, Headers, Outputs
    from .runtimes.base import Model

    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]

logger = logging.getLogger(__name__)

_SECRET_HEADER: Final = SECRET_HEADER.encode()
_LARGE: Final = 64 * 1024  # bytes; a larger body is decoded beside the event loop
_WATCH_AFTER: Final = 0.01  # seconds
_LONGEST_ERROR: Final = 4000  # characters
_KEEP_ALIVE: Final = 365 * 24 * 3600  # seconds; it is the supervisor that closes connections


class _ClientGone(Exception):
    """Nobody waits for the answer any more."""


class App:
    """The ASGI app of one model.

    POST /v1/predict, /v1/classify, /v1/regress and /v2/infer take the bodies of TensorFlow
    Serving and KServe V2; GET /stats tells V2's statistics. Every request must carry the worker's
    secret. Errors are {"error": "..."}: 4xx for a request that cannot be served, 500 where the
    model raised.
    """

    def __init__(self, model: Model, spec: LaunchSpec) -> None:
        if not spec.secret:
            raise ValueError("the launch spec has no secret; a worker must not be open to all")
        self._secret = spec.secret
        self._spec = spec
        self._forms = Forms(model.signatures, spec)
        self._batcher = Batcher(model, BatchRules.of(spec))
        self._codec_threads = ThreadPoolExecutor(2, thread_name_prefix="codec")
        self._predictions: dict[str, Callable[[Headers], Form]] = {
            "/v1/predict": self._forms.predict,
            "/v1/classify": self._forms.classify,
            "/v1/regress": self._forms.regress,
            "/v2/infer": self._forms.infer,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request; say nothing to a client that has gone."""
        try:
            reply = await self._reply(scope, receive)
        except _ClientGone:
            return
        headers = [*reply.headers, (b"content-length", b"%d" % _size(reply))]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        last = len(reply.buffers) - 1
        for number, buffer in enumerate(reply.buffers):
            more = number < last
            await send({"type": "http.response.body", "body": buffer, "more_body": more})

    async def _reply(self, scope: Message, receive: Receive) -> Reply:
        headers = dict(scope["headers"])
        if not hmac.compare_digest(headers.get(_SECRET_HEADER, b""), self._secret.encode()):
            return self._error(403, f"the header {SECRET_HEADER} is missing or wrong")
        path = scope["path"]
        form_of = self._predictions.get(path)
        if form_of is None and path != "/stats":
            return self._error(404, f"a worker has no path {path}")
        method = "GET" if form_of is None else "POST"
        if scope["method"] != method:
            reply = self._error(405, f"{path} takes {method} alone")
            return reply._replace(headers=(*reply.headers, (b"allow", method.encode())))
        if form_of is None:
            return self._stats()
        try:
            return await self._answer(headers, receive, form_of(headers))
        except BadInput as error:
            return self._error(error.status, str(error))
        except CallFailed as error:
            return self._error(400 if error.user_error else 500, str(error))
        except _ClientGone:
            raise
        except Exception as error:
            logger.exception("answering %s failed", path)
            return self._error(500, f"{type(error).__name__} in the worker; its log says more")

    def _error(self, status: int, message: str) -> Reply:
        text = message.replace(self._secret, "[secret]")[:_LONGEST_ERROR]
        return Reply(status, [orjson.dumps({"error": text.encode(errors="replace").decode()})])

    def _stats(self) -> Reply:
        spec, batcher = self._spec, self._batcher
        told = batcher.statistics.to_v2(spec.model, spec.version, batcher.waiting)
        return Reply(200, [orjson.dumps(told)])

    async def _answer(self, headers: Headers, receive: Receive, form: Form) -> Reply:
        """Decode, compute, encode: large bodies in a thread, so that small ones pass by."""
        loop = asyncio.get_running_loop()
        decode, encode = form
        body = await _body(receive)
        if b"content-encoding" in headers:
            body = await loop.run_in_executor(self._codec_threads, self._unpacked, body, headers)
        if len(body) > _LARGE or decode is self._forms.decode_image:
            request = await loop.run_in_executor(self._codec_threads, decode, body)
        else:
            request = decode(body)
        del body
        outputs = await self._compute(request, receive)
        if sum(array.nbytes for array in outputs.values()) > _LARGE:
            reply = await loop.run_in_executor(self._codec_threads, encode, request, outputs)
        else:
            reply = encode(request, outputs)
        del request, outputs
        if b"accept-encoding" in headers and _size(reply) >= compression.WORTH_IT:
            accepted = headers[b"accept-encoding"]
            return await loop.run_in_executor(self._codec_threads, _packed, reply, accepted)
        return reply

    def _unpacked(self, body: Body, headers: Headers) -> Body:
        encoding = headers[b"content-encoding"].decode("latin-1")
        return compression.unpacked(body, encoding, self._spec.max_body_size)

    async def _compute(self, request: Request, receive: Receive) -> Outputs:
        """Wait for the outputs; a client that goes away takes its request out of the queue."""
        answer = self._batcher.submit(request)
        watch = _Watch(receive, answer)
        try:
            return await answer
        except asyncio.CancelledError:
            if watch.client_gone:
                raise _ClientGone from None
            raise
        finally:
            watch.end()


class _Watch:
    """Cancels an answer when its client disconnects.

    Starts after a moment: a task for every request costs as much as its decoding, and most are
    answered by then.
    """

    def __init__(self, receive: Receive, answer: asyncio.Future[Any]) -> None:
        self.client_gone = False
        self._receive = receive
        self._answer = answer
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, self._start)

    def _start(self) -> None:
        self._task = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.client_gone = True
        self._answer.cancel()

    def end(self) -> None:
        """Stop watching."""
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def _body(receive: Receive) -> Body:
    """Return the whole body; a large one grows in place, so that it is never held twice."""
    piece, more = await _piece(receive)
    if not more:
        return piece
    whole = bytearray(piece)
    while more:
        piece, more = await _piece(receive)
        whole += piece
    return whole


async def _piece(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise _ClientGone
    return message.get("body", b""), message.get("more_body", False)


def _size(reply: Reply) -> int:
    return sum(map(len, reply.buffers))


def _packed(reply: Reply, accepted: bytes) -> Reply:
    """Return a reply in the compression that its client accepts, if there is one."""
    encoding = compression.chosen(accepted)
    if encoding is None:
        return reply
    told = ((b"content-encoding", encoding.encode()), (b"vary", b"accept-encoding"))
    buffers = compression.packed(reply.buffers, encoding)
    return reply._replace(buffers=buffers, headers=(*reply.headers, *told))


def build_app(model: Model, spec: LaunchSpec) -> App:
    """Return the app that serves `model`.

    Raises ValueError on a spec without a secret, LoadFailed on options that do not fit the model.
    """
    return App(model, spec)


def serve(app: App, listener: socket.socket, on_started: Callable[[], None]) -> None:
    """Serve on a bound socket until SIGTERM, then finish what is in flight and return.

    Calls `on_started` once requests are accepted. Must run in the main thread. The end has no
    time bound of its own: whoever sent SIGTERM decides how long to wait.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=_Connection,
        ws="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
    )
    _Server(config, on_started).run(sockets=[listener])


class _State(ServerState):
    """What uvicorn's server and its connections share, and a word when none is left."""

    def __init__(self) -> None:
        super().__init__()
        self.all_closed = asyncio.Event()


class _Connection(JoiningProtocol):
    longest_head = 2 * JoiningProtocol.longest_head  # the supervisor adds headers of its own
    server_state: _State

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self.connections:
            self.server_state.all_closed.set()


class _Server(uvicorn.Server):
    """uvicorn without its ticks: its loop and its shutdown sleep 0.1 s at a time.

    Nor does it end by raising SIGTERM again, so that the process may exit with 0.
    """

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self.server_state: _State = _State()
        self._on_started = on_started
        self._stop = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        yield
        loop.remove_signal_handler(signal.SIGTERM)

    async def main_loop(self) -> None:
        self._on_started()
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        connections = self.server_state.connections
        for connection in list(connections):
            connection.shutdown()  # at once if idle, else after its answer
        self.server_state.all_closed.clear()
        if connections:
            await self.server_state.all_closed.wait()
