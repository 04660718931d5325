"""The whole application on a real server: dispatch, bounds, and who may hold what."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import requests
import uvicorn
from modelsup.supervisor.fleet.views import Loaded
from modelsup.supervisor.http.app import App, create_app
from modelsup.supervisor.http.control import create_control
from modelsup.supervisor.http.control_gate import LARGEST_BODY, MOST_LOADS, kind_of
from modelsup.supervisor.http.control_ports import HostMemory
from modelsup.supervisor.http.streams import LogStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from modelsup.supervisor.domain import Memory
    from modelsup.supervisor.http.asgi import Receive, Scope, Send

JSON = {"Content-Type": "application/json"}


class Fleet:
    """Loads wait at a gate that the test opens."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.begun = threading.Semaphore(0)  # released by each load that begins
        self.loaded = threading.Semaphore(0)  # released by each load that ends
        self.sources: list[str | None] = []

    async def load(self, name: str, source: str | None, *_: Any) -> Loaded:
        self.sources.append(source)
        self.begun.release()
        await self.gate.wait()
        self.loaded.release()
        return Loaded(name, "1", "w1", False, {}, 0)

    def workers(self) -> list[Any]:
        return []

    def model(self, name: str) -> object:
        return name

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} is not asked for here")


class Feed:
    """One line, then silence."""

    async def __aiter__(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(text="live")
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


class Logs:
    def tail(self, model: str, count: int) -> list[Any]:
        return [SimpleNamespace(text="old")]

    def subscribe(self, model: str) -> Feed:
        return Feed()


class Facts:
    version, pid, url, grpc, state_dir, started_at = "1", 1, "", None, "", 0.0

    def stopping(self) -> bool:
        return False

    def forkservers(self) -> list[Any]:
        return []

    def request_stop(self) -> None:
        raise AssertionError("nobody asked for a stop")

    def process_memory(self, pid: int) -> Memory | None:
        return None

    def host_memory(self) -> HostMemory:
        return HostMemory(1, 1, 1)


class Health:
    reason: str | None = None

    def obstacle(self) -> str | None:
        return self.reason


async def _gateway(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"gateway " + scope["path"].encode()})


class Running:
    """The application on a server in a thread of its own."""

    def __init__(self) -> None:
        self.health = Health()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.address = self.socket.getsockname()
        self.url = f"http://127.0.0.1:{self.address[1]}"
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.fleet: Fleet
        self.app: App
        self.loop: asyncio.AbstractEventLoop

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(30)

    def stop(self) -> None:
        """End as the daemon does: first what waits, then the server."""
        asyncio.run_coroutine_threadsafe(self.app.close(), self.loop).result(30)
        self.loop.call_soon_threadsafe(setattr, self._server, "should_exit", True)
        self._thread.join(30)
        assert not self._thread.is_alive()

    def open_gate(self) -> None:
        self.loop.call_soon_threadsafe(self.fleet.gate.set)

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.fleet = Fleet()
        control = create_control(self.fleet, self.loop, Facts(), Logs())
        streams = LogStreams(self.fleet, Logs())
        self.app = create_app(_gateway, control, [streams], self.health)
        config = uvicorn.Config(self.app, log_level="error", access_log=False, lifespan="on")
        self._server = uvicorn.Server(config)
        self._started.set()  # the socket listens already; the kernel holds early callers
        await self._server.serve(sockets=[self.socket])


@pytest.fixture
def running() -> Iterator[Running]:
    running = Running()
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize("path", ["/v1/models/m:predict", "/v2", "/v2/models/m", "/clients/j"])
def test_predictions_go_to_the_gateway(running: Running, path: str) -> None:
    assert requests.post(running.url + path, timeout=30).text == f"gateway {path}"


@pytest.mark.parametrize("path", ["/v1x", "/api/nothing", "/clientsx", "/"])
def test_the_rest_goes_to_flask(running: Running, path: str) -> None:
    response = requests.get(running.url + path, timeout=30)
    assert (response.status_code, response.json()["code"]) == (404, "not_found")


def test_probes(running: Running) -> None:
    assert requests.get(f"{running.url}/healthz", timeout=30).json() == {"status": "ok"}
    assert requests.get(f"{running.url}/readyz", timeout=30).json() == {"status": "ready"}
    running.health.reason = "restoring"
    restoring = requests.get(f"{running.url}/readyz", timeout=30)
    assert (restoring.status_code, restoring.json()) == (503, {"status": "restoring"})
    assert "Retry-After" in restoring.headers
    assert requests.get(f"{running.url}/healthz", timeout=30).status_code == 200
    refused = requests.post(f"{running.url}/healthz", timeout=30)
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD")


def test_a_followed_log_streams_and_ends_with_the_supervisor() -> None:
    running = Running()
    running.start()
    url = f"{running.url}/api/models/m/logs?follow=1"
    with requests.get(url, stream=True, timeout=30) as response:
        lines = response.iter_lines()
        assert [next(lines), next(lines)] == [b"old", b"live"]
        running.stop()
        assert list(lines) == []


def test_the_tail_alone_comes_from_flask(running: Running) -> None:
    response = requests.get(f"{running.url}/api/models/m/logs", timeout=30)
    assert (response.text, response.headers["Content-Length"]) == ("old\n", "4")


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_refused_before_flask(running: Running, chunked: bool) -> None:
    body = b"x" * (LARGEST_BODY + 1)
    data = iter([body[:500_000], body[500_000:]]) if chunked else body
    url = f"{running.url}/api/models/m/load"
    response = requests.post(url, data=data, headers=JSON, timeout=30)
    assert (response.status_code, response.json()["code"]) == (413, "too_large")


def test_a_chunked_body_reaches_flask(running: Running) -> None:
    """WSGI has no length for it; Flask would take it for empty and load with no source."""
    running.open_gate()
    url = f"{running.url}/api/models/m/load"
    data = iter([b'{"source"', b': "/m.keras"}'])
    assert requests.post(url, data=data, headers=JSON, timeout=30).status_code == 200
    assert running.fleet.sources == ["/m.keras"]


def test_a_query_that_is_not_ascii_is_a_bad_request(running: Running) -> None:
    with socket.create_connection(running.address, timeout=30) as connection:
        connection.sendall(b"GET /api/models?\xc3\xa4=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        assert connection.recv(4096).split(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"


def test_a_caller_who_goes_away_does_not_end_the_load(running: Running) -> None:
    with socket.create_connection(running.address, timeout=30) as connection:
        connection.sendall(b"POST /api/models/m/load HTTP/1.1\r\nHost: x\r\n\r\n")
        assert running.fleet.begun.acquire(timeout=30)
    assert requests.get(f"{running.url}/api/workers", timeout=30).status_code == 200
    running.open_gate()
    assert running.fleet.loaded.acquire(timeout=30)


def test_a_caller_who_goes_away_in_the_middle_of_a_body_starts_nothing(running: Running) -> None:
    head = b"POST /api/models/m/load HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{"
    with socket.create_connection(running.address, timeout=30) as connection:
        connection.sendall(head)
    assert requests.get(f"{running.url}/api/workers", timeout=30).status_code == 200
    assert running.fleet.sources == []


def test_waiting_loads_are_bounded_and_leave_room_to_look(running: Running) -> None:
    load = f"{running.url}/api/models/m/load"
    with ThreadPoolExecutor(MOST_LOADS) as callers:
        waiting = [callers.submit(requests.post, load, timeout=60) for _ in range(MOST_LOADS)]
        for _ in waiting:
            assert running.fleet.begun.acquire(timeout=60)
        looked = requests.get(f"{running.url}/api/workers", timeout=30)
        refused = requests.post(load, timeout=30)
        running.open_gate()
        statuses = {call.result().status_code for call in waiting}
    assert looked.json() == {"workers": []}
    assert (refused.status_code, refused.json()["code"]) == (429, "busy")
    assert "Retry-After" in refused.headers
    assert statuses == {200}
    assert requests.post(load, timeout=30).status_code == 200


def test_closing_answers_waiting_loads_and_later_calls(running: Running) -> None:
    with ThreadPoolExecutor() as callers:
        load = f"{running.url}/api/models/m/load"
        waiting = callers.submit(requests.post, load, timeout=60)
        assert running.fleet.begun.acquire(timeout=30)
        asyncio.run_coroutine_threadsafe(running.app.close(), running.loop).result(30)
        assert waiting.result().json()["code"] == "stopping"
    later = requests.get(f"{running.url}/api/workers", timeout=30)
    assert (later.status_code, later.json()["code"]) == (503, "stopping")


@pytest.mark.parametrize(
    ("method", "path", "query", "kind"),
    [
        ("POST", "/api/models/m/load", b"", "load"),
        ("POST", "/api/models/m/load/", b"wait=1s", "load"),
        ("POST", "/api/models/m/load", b"wait=0", "quick"),
        ("PUT", "/api/clients/j/model", b"", "load"),
        ("POST", "/api/models/m/unload", b"", "unload"),
        ("DELETE", "/api/clients/j", b"", "unload"),
        ("PUT", "/api/models/m", b"", "quick"),
        ("DELETE", "/api/models/m", b"", "quick"),
        ("POST", "/api/stop", b"", "quick"),
        ("GET", "/api/workers", b"", "quick"),
    ],
)
def test_what_a_call_may_wait_for(method: str, path: str, query: bytes, kind: str) -> None:
    assert kind_of({"method": method, "path": path, "query_string": query}) == kind
