"""The worker's HTTP side: routes, errors, clients that go away, and an orderly end."""

from __future__ import annotations

import asyncio
import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.worker.contract import LaunchSpec, Signature, TensorInfo
from modelsup.worker.serve import App, build_app

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

Array = np.ndarray[Any, Any]
SECRET = "a-secret-of-this-test"
ALLOWED = {"x-modelsup-secret": SECRET}
X = TensorInfo("x", "float32", (None, None))


class InvalidArgumentError(Exception):
    """Called like TensorFlow's error for a bad input."""


class Doubler:
    """Doubles its input; raises what `error` holds; waits for `gate` in each call."""

    def __init__(self) -> None:
        self.signatures = {"serving_default": Signature("serving_default", (X,), (X,), True)}
        self.error: Exception | None = None
        self.calls = 0
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(1000)

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        self.calls += 1
        self.entered.release()
        self.gate.acquire()
        if self.error is not None:
            raise self.error
        return {"x": inputs["x"] * 2}


def spec(secret: str = SECRET) -> LaunchSpec:
    return LaunchSpec("uid", "doubler", "7", "none", None, secret, "/tmp")


class Exchange:
    """One request to an ASGI app; the client stays until `leave` is called."""

    def __init__(
        self, method: str, path: str, chunks: list[bytes], headers: dict[str, str]
    ) -> None:
        raw = [(k.encode(), v.encode()) for k, v in headers.items()]
        self.scope = {"type": "http", "method": method, "path": path, "headers": raw}
        self._chunks = chunks
        self._left = asyncio.Event()
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> dict[str, Any]:
        if self._chunks:
            body = self._chunks.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self._chunks)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {k.decode(): v.decode() for k, v in message["headers"]}
        else:
            self.body += message["body"]


async def ask(
    app: App, method: str, path: str, *chunks: bytes, headers: dict[str, str] = ALLOWED
) -> Exchange:
    exchange = Exchange(method, path, list(chunks) or [b""], headers)
    await app(exchange.scope, exchange.receive, exchange.send)
    assert exchange.headers["content-length"] == str(len(exchange.body))
    return exchange


def error(exchange: Exchange) -> tuple[int, str]:
    assert exchange.headers["content-type"] == "application/json"
    document = json.loads(exchange.body)
    assert document.keys() == {"error"}
    return exchange.status, document["error"]


def run(main: Callable[[App, Doubler], Coroutine[Any, Any, None]]) -> None:
    async def started() -> None:
        model = Doubler()
        await main(build_app(model, spec()), model)

    asyncio.run(started())


def test_a_v1_prediction_and_the_counters() -> None:
    async def main(app: App, model: Doubler) -> None:
        answer = await ask(app, "POST", "/v1/predict", b'{"instances":', b" [[1, 2]]}")
        assert (answer.status, answer.body) == (200, b'{"predictions":[[2.0,4.0]]}')
        stats = json.loads((await ask(app, "GET", "/stats")).body)
        assert (stats["name"], stats["version"], stats["waiting"]) == ("doubler", "7", 0)
        assert (stats["inference_count"], stats["execution_count"]) == (1, 1)
        assert stats["inference_stats"]["success"]["count"] == 1
        assert stats["inference_stats"]["fail"] == {"count": 0, "ns": 0}
        assert [size["batch_size"] for size in stats["batch_stats"]] == [1]

    run(main)


def test_a_v2_prediction_in_json() -> None:
    async def main(app: App, model: Doubler) -> None:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [4]}
        answer = await ask(app, "POST", "/v2/infer", json.dumps({"inputs": [x]}).encode())
        assert answer.headers["content-type"] == "application/json"
        document = json.loads(answer.body)
        assert (document["model_name"], document["model_version"]) == ("doubler", "7")
        assert document["outputs"][0]["data"] == [8]

    run(main)


def test_a_v2_prediction_in_binary() -> None:
    async def main(app: App, model: Doubler) -> None:
        array = np.random.default_rng(1).random((3, 30_000), np.float32)  # beyond _LARGE
        x = {"name": "x", "datatype": "FP32", "shape": array.shape}
        x["parameters"] = {"binary_data_size": array.nbytes}
        head = {"inputs": [x], "parameters": {"binary_data_output": True}}
        text = json.dumps(head).encode()
        headers = ALLOWED | {"inference-header-content-length": str(len(text))}
        answer = await ask(app, "POST", "/v2/infer", text, array.tobytes(), headers=headers)
        assert answer.headers["content-type"] == "application/octet-stream"
        size = int(answer.headers["inference-header-content-length"])
        assert json.loads(answer.body[:size])["outputs"][0]["shape"] == [3, 30_000]
        assert answer.body[size:] == (array * 2).tobytes()

    run(main)


def test_a_large_body_is_answered_like_a_small_one() -> None:
    async def main(app: App, model: Doubler) -> None:
        rows = np.arange(60_000).reshape(-1, 6).tolist()
        body = json.dumps({"instances": rows}).encode()
        answer = await ask(app, "POST", "/v1/predict", body)
        assert json.loads(answer.body)["predictions"] == (np.array(rows) * 2).tolist()
        broken = await ask(app, "POST", "/v1/predict", body[:-2])
        assert error(broken)[0] == 400

    run(main)


@pytest.mark.parametrize(
    "headers", [{}, {"x-modelsup-secret": ""}, {"x-modelsup-secret": SECRET + "x"}]
)
@pytest.mark.parametrize("path", ["/v1/predict", "/stats", "/elsewhere"])
def test_without_the_secret_nothing_is_told(headers: dict[str, str], path: str) -> None:
    async def main(app: App, model: Doubler) -> None:
        status, message = error(await ask(app, "POST", path, b"{}", headers=headers))
        assert status == 403
        assert SECRET not in message
        assert model.calls == 0

    run(main)


def test_a_worker_without_a_secret_does_not_start() -> None:
    with pytest.raises(ValueError, match="no secret"):
        build_app(Doubler(), spec(secret=""))


def test_what_is_not_served_is_said() -> None:
    async def main(app: App, model: Doubler) -> None:
        assert error(await ask(app, "POST", "/v1/models")) == (
            404,
            "a worker has no path /v1/models",
        )
        wrong = await ask(app, "GET", "/v1/predict")
        assert error(wrong)[0] == 405
        assert wrong.headers["allow"] == "POST"
        packed = ALLOWED | {"content-encoding": "br"}
        status, message = error(await ask(app, "POST", "/v1/predict", b"", headers=packed))
        assert status == 415
        assert "'br' is not supported; use gzip or deflate" in message
        assert error(await ask(app, "POST", "/v1/predict", b"{}"))[0] == 400
        assert error(await ask(app, "POST", "/v2/infer", b"{}"))[0] == 400
        for size in ("-1", "x", "9" * 30):
            headers = ALLOWED | {"inference-header-content-length": size}
            assert error(await ask(app, "POST", "/v2/infer", b"{}", headers=headers))[0] == 400

    run(main)


@pytest.mark.parametrize("path", ["/v1/predict", "/v2/infer"])
@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (ValueError("no\n  luck"), 500, "no luck"),
        (ValueError(f"the key is {SECRET}"), 500, "the key is [secret]"),
        (ValueError("\ud800" + "x" * 9000), 500, "?" + "x" * 3999),
        (KeyError(), 500, "KeyError"),
        (InvalidArgumentError("bad ids"), 400, "bad ids"),
    ],
)
def test_what_the_model_raises_is_told_in_one_line(
    path: str, raised: Exception, status: int, message: str
) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [4]}
    body = json.dumps({"inputs": [[1]] if path == "/v1/predict" else [x]}).encode()

    async def main(app: App, model: Doubler) -> None:
        model.error = raised
        assert error(await ask(app, "POST", path, body)) == (status, message)

    run(main)


def test_an_output_that_the_model_forgot_is_an_error_of_the_worker() -> None:
    class Forgetful(Doubler):
        def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
            return {}

    async def main() -> None:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 1], "data": [4]}
        body = json.dumps({"inputs": [x]}).encode()
        status, message = error(
            await ask(build_app(Forgetful(), spec()), "POST", "/v2/infer", body)
        )
        assert (status, message) == (500, "KeyError in the worker; its log says more")

    asyncio.run(main())


def test_a_client_that_leaves_takes_its_request_along() -> None:
    async def main(app: App, model: Doubler) -> None:
        model.gate = threading.Semaphore(0)
        body = b'{"instances": [[1]]}'
        first = asyncio.ensure_future(ask(app, "POST", "/v1/predict", body))
        await asyncio.get_running_loop().run_in_executor(None, model.entered.acquire)
        leaver = Exchange("POST", "/v1/predict", [body], ALLOWED)
        leaving = asyncio.ensure_future(app(leaver.scope, leaver.receive, leaver.send))
        leaver.leave()
        await leaving
        assert leaver.status == 0
        model.gate.release(1000)
        assert (await first).status == 200
        assert (await ask(app, "POST", "/v1/predict", body)).status == 200
        assert model.calls == 2

    run(main)


def test_a_client_that_leaves_while_it_sends_is_not_answered() -> None:
    async def main(app: App, model: Doubler) -> None:
        leaver = Exchange("POST", "/v1/predict", [], ALLOWED)
        leaver.leave()
        await app(leaver.scope, leaver.receive, leaver.send)
        assert leaver.status == 0

    run(main)


def test_a_cancelled_task_stays_cancelled() -> None:
    async def main(app: App, model: Doubler) -> None:
        model.gate = threading.Semaphore(0)
        task = asyncio.ensure_future(ask(app, "POST", "/v1/predict", b'{"instances": [[1]]}'))
        await asyncio.get_running_loop().run_in_executor(None, model.entered.acquire)
        task.cancel()
        model.gate.release()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main)


# A worker in a process of its own: it says "ready", then "call" from within each call, which
# lasts until a line comes on its standard input.
WORKER = """
import socket, sys
from modelsup.worker.contract import LaunchSpec, Signature, TensorInfo
from modelsup.worker.serve import build_app, serve

X = TensorInfo("x", "float32", (None, None))

class Model:
    signatures = {"serving_default": Signature("serving_default", (X,), (X,), True)}

    def call(self, signature, inputs):
        print("call", flush=True)
        sys.stdin.readline()
        return {"x": inputs["x"].repeat(1_000_000, axis=1)}

spec = LaunchSpec("uid", "m", "1", "none", None, sys.argv[2], "/tmp")
listener = socket.socket(fileno=int(sys.argv[1]))
serve(build_app(Model(), spec), listener, lambda: print("ready", flush=True))
print("served", flush=True)
"""


@contextmanager
def worker() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A started worker and its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-c", WORKER, str(listener.fileno()), SECRET],
            pass_fds=[listener.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
    with process:
        try:
            assert line(process) == "ready"
            yield process, port
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def connected(port: int) -> Iterator[http.client.HTTPConnection]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        yield connection


def wait_until_waiting(connection: http.client.HTTPConnection, count: int) -> None:
    while True:
        connection.request("GET", "/stats", headers=ALLOWED)
        if json.loads(connection.getresponse().read())["waiting"] == count:
            return


def test_a_connection_outlives_a_refused_body() -> None:
    with worker() as (_, port), connected(port) as connection:
        connection.request("POST", "/v1/predict", b"x" * 1_000_000)
        answer = connection.getresponse()
        assert answer.status == 403
        assert answer.read().startswith(b'{"error"')
        used = connection.sock
        connection.request("GET", "/stats", headers=ALLOWED)
        answer = connection.getresponse()
        assert answer.status == 200
        assert connection.sock is used
        assert {name.lower() for name in answer.headers} == {"content-type", "content-length"}


def test_sigterm_ends_an_idle_worker() -> None:
    with worker() as (process, port), connected(port) as connection:
        wait_until_waiting(connection, 0)
        process.send_signal(signal.SIGTERM)
        assert line(process) == "served"
        assert process.wait(30) == 0


def test_sigterm_lets_what_is_in_flight_finish() -> None:
    with worker() as (process, port), connected(port) as connection:
        connection.request("POST", "/v1/predict", b'{"instances": [[1]]}', ALLOWED)
        assert line(process) == "call"
        process.send_signal(signal.SIGTERM)
        tell(process)
        answer = connection.getresponse()
        assert len(json.loads(answer.read())["predictions"][0]) == 1_000_000
        assert line(process) == "served"
        assert process.wait(30) == 0


def test_a_connection_that_closes_cancels_its_waiting_request() -> None:
    with worker() as (process, port), connected(port) as stays, connected(port) as stats:
        stays.request("POST", "/v1/predict", b'{"instances": [[1]]}', ALLOWED)
        assert line(process) == "call"
        with connected(port) as leaves:
            leaves.request("POST", "/v1/predict", b'{"instances": [[2]]}', ALLOWED)
            wait_until_waiting(stats, 1)
        wait_until_waiting(stats, 0)
        tell(process)
        assert stays.getresponse().read().startswith(b'{"predictions"')
        process.send_signal(signal.SIGTERM)
        assert line(process) == "served"  # and not "call"
