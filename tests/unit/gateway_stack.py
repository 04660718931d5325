"""A gateway between real sockets: uvicorn's protocol before it, a scripted worker behind it."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from modelsup.supervisor.adapters.upstream import HttpUpstream
from modelsup.supervisor.domain import Failure, Options
from modelsup.supervisor.errors import NotLoaded, UnknownModel
from modelsup.supervisor.fleet.views import ModelView
from modelsup.supervisor.http.gateway import Gateway, Limits
from modelsup.worker.contract import Signature, TensorInfo
from modelsup.worker.http_protocol import JoiningProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    Headers = dict[str, str]

SIGNATURE = Signature(
    "serving_default",
    (TensorInfo("x", "float32", (None, 4)),),
    (TensorInfo("y", "float32", (None, 2)),),
    batchable=True,
)
ANSWER = b'{"predictions": [1]}'
LIMIT = 8_000_000  # bytes


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run one asynchronous test."""
    asyncio.run(asyncio.wait_for(test, 20))


def view(name: str, state: str = "ready", **changes: Any) -> ModelView:
    """Return a model as the fleet shows it."""
    fields: dict[str, Any] = {
        "name": name,
        "source": None,
        "runtime": "echo",
        "version": "1" if state == "ready" else None,
        "versions": ("1",),
        "state": state,
        "workers": (),
        "clients": (),
        "pinned": False,
        "options": Options(),
        "failure": None,
        "signatures": (SIGNATURE,),
    }
    return ModelView(**fields | changes)


class Worker:
    """A worker that counts what is in flight."""

    uid = "m-1"
    signatures = (SIGNATURE,)

    def __init__(self, upstream: HttpUpstream) -> None:
        self.upstream = upstream
        self.begun = 0
        self.ended: list[bool] = []
        self.failure: Failure | None = None
        self.idle = asyncio.Event()

    def begin(self) -> None:
        self.begun += 1

    def end(self, completed: bool) -> None:
        self.ended.append(completed)
        self.idle.set()

    async def until_explained(self) -> Failure | None:
        return self.failure


class Router:
    """A fleet with the model m, whose worker is ready unless `loading` is set."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.loading: asyncio.Future[None] | None = None
        self.asked = asyncio.Event()
        self.withdrawn = asyncio.Event()
        self.hung: list[Any] = []
        self.overdue: list[Any] = []
        self.kept: list[float] = []
        self.views = {"m": view("m")}
        self.acts: list[tuple[str, str]] = []
        self.error: Exception | None = None
        self.queued = 0
        self.retry = True
        self.before: list[Worker] = []  # are given out before the worker is

    def ready(self, model: str, version: str | None = None) -> Worker | None:
        found = self.views.get(model)
        is_ready = found is not None and found.state == "ready" and version in (None, "1")
        return self.worker if self.loading is None and is_ready and not self.error else None

    def serving(self, model: str, version: str | None = None) -> list[Worker]:
        worker = self.ready(model, version)
        return [worker] if worker is not None else []

    def take(self, model: str, version: str | None = None) -> Worker | None:
        worker = self.before.pop() if self.before else self.ready(model, version)
        if worker is not None:
            worker.begin()
        return worker

    def take_for_client(self, client: str) -> Worker | None:
        return self.take("m") if client == "john" else None

    async def turn(self, model: str, version: str | None = None) -> Worker:
        worker = await self.ensure_ready(model, version)
        worker.begin()
        return worker

    async def turn_for_client(self, client: str) -> Worker:
        return await self.turn("m")

    def waiting(self, model: str, version: str | None = None) -> int:
        return self.queued

    async def ensure_ready(self, model: str, version: str | None = None) -> Worker:
        if self.error is not None:
            raise self.error
        if model not in self.views:
            raise UnknownModel(f"no model {model!r} is known", model=model)
        self.asked.set()
        if self.loading is not None:
            try:
                await self.loading
            except asyncio.CancelledError:
                self.withdrawn.set()
                raise
        return self.worker

    async def ensure_ready_for_client(self, client: str) -> Worker:
        return await self.ensure_ready("m")

    def labelled(self, model: str, label: str) -> str:
        labels = self.model(model).options.labels or {}
        if label not in labels:
            raise UnknownModel(f"no label {label!r}", model=model)
        return labels[label]

    def retries(self, worker: Any) -> bool:
        return self.retry

    def report_hung(self, worker: Any) -> None:
        self.hung.append(worker)

    def report_overdue(self, worker: Any) -> None:
        self.overdue.append(worker)

    def keep_alive(self, worker: Any, seconds: float) -> None:
        self.kept.append(seconds)

    def models(self) -> list[ModelView]:
        return list(self.views.values())

    def model(self, name: str) -> ModelView:
        if name not in self.views:
            raise UnknownModel(f"no model {name!r} is known", model=name)
        return self.views[name]

    async def load(self, name: str) -> None:
        self.acts.append(("load", name))

    async def unload(self, name: str) -> object:
        self.acts.append(("unload", name))
        if name == "cold":
            raise NotLoaded("not loaded", model=name)
        return []


class Client:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(
        self, method: str, path: str, headers: Headers | None = None, body: bytes = b""
    ) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: gateway"]
        given = headers or ({"content-length": str(len(body))} if method == "POST" else {})
        lines += [f"{name}: {value}" for name, value in given.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def answer(self) -> tuple[int, Headers, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = dict(line.split(": ", 1) for line in head[1:])
        status = int(head[0].split(" ")[1])
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, b""

    async def call(self, *arguments: Any, **more: Any) -> tuple[int, Headers, Any]:
        """Send a request and return the answer, its body as JSON."""
        self.send(*arguments, **more)
        status, headers, body = await self.answer()
        return status, headers, json.loads(body)


class Stack:
    """Gateway, router and worker of one test."""

    def __init__(self, port: int, router: Router) -> None:
        self.port = port
        self.router = router
        self.worker = router.worker
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> Client:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._writers.append(writer)
        return Client(reader, writer)

    async def close(self) -> None:
        for writer in self._writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


@asynccontextmanager
async def stack(handler: Handler, **limits: Any) -> AsyncIterator[Stack]:
    """Serve a gateway before a worker that `handler` plays."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    behind = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = HttpUpstream("127.0.0.1", behind.sockets[0].getsockname()[1], "secret")
    router = Router(Worker(upstream))
    whole = {"max_body_size": LIMIT, "request_timeout": 10.0, "autoload": True} | limits
    config = uvicorn.Config(Gateway(router, Limits(**whole)), log_config=None, access_log=False)
    config.load()
    state = ServerState()
    front = await asyncio.get_running_loop().create_server(
        lambda: JoiningProtocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
    )
    it = Stack(front.sockets[0].getsockname()[1], router)
    try:
        yield it
    finally:
        await it.close()
        upstream.close()
        front.close()
        behind.close()
        for connection in list(state.connections):
            connection.shutdown()
        await asyncio.gather(*state.tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader) -> tuple[str, Headers, bytes]:
    """Return path, headers and body of a request that has a content-length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
    headers = dict(line.split(": ", 1) for line in head[1:])
    body = await reader.readexactly(int(headers["content-length"]))
    return head[0].split(" ")[1], headers, body


def head_of(length: int, status: str = "200 OK") -> bytes:
    """Return the head of a worker's answer."""
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status.encode(), length)


PASSED = ("traceparent", "x-request-id", "x-modelsup-keep-alive", "x-request-timeout")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer each request with its path and body."""
    while True:
        path, headers, body = await read_request(reader)
        kept = {name: headers[name] for name in PASSED if name in headers}
        answer = json.dumps({"path": path, "body": body.decode(), "kept": kept}).encode()
        writer.write(head_of(len(answer)) + answer)


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never answer."""
    await reader.read()
