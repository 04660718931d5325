"""The gateway between real sockets: uvicorn's protocol before it, a scripted worker behind it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters.upstream import HttpUpstream
from modelsup.supervisor.domain import Failure, Options
from modelsup.supervisor.errors import (
    LoadFailed,
    QueueFull,
    Restarting,
    UnknownModel,
)
from modelsup.supervisor.http import statistics
from modelsup.supervisor.http.gateway import Gateway, Limits
from modelsup.supervisor.http.request_body import HELD

from tests.unit.gateway_stack import (
    ANSWER,
    LIMIT,
    Router,
    Worker,
    echo,
    head_of,
    read_request,
    run,
    silence,
    stack,
    view,
)

if TYPE_CHECKING:
    from tests.unit.gateway_stack import Handler


@pytest.mark.parametrize(
    ("path", "inner"),
    [
        ("/v1/models/m:predict", "/v1/predict"),
        ("/v1/models/m/versions/1:predict", "/v1/predict"),
        ("/v2/models/m/infer", "/v2/infer"),
        ("/clients/john/predict", "/v1/predict"),
        ("/clients/john/infer", "/v2/infer"),
    ],
)
def test_a_prediction_passes_through(path: str, inner: str) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            for number in (1, 2):
                status, headers, answer = await client.call("POST", path, body=b"[%d]" % number)
                assert status == 200
                assert headers["x-modelsup-worker"] == "m-1"
                assert answer == {"path": inner, "body": f"[{number}]", "kept": {}}
            assert it.worker.begun == 2
            assert it.worker.ended == [True, True]

    run(test())


def test_the_request_id_and_the_trace_pass_through() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            traced = {"x-request-id": "r7", "traceparent": "00-1-2-03", "content-length": "0"}
            _, headers, answer = await client.call("POST", "/v2/models/m/infer", traced)
            assert headers["x-request-id"] == "r7"
            assert answer["kept"] == {"traceparent": "00-1-2-03", "x-request-id": "r7"}
            _, headers, _ = await client.call("POST", "/v1/models/no:predict", traced)
            assert headers["x-request-id"] == "r7"

    run(test())


@pytest.mark.parametrize(
    "path", ["/v1/models/m:predict", "/v2/models/m/infer", "/clients/john/infer"]
)
def test_how_long_a_model_stays_is_for_the_fleet_alone(path: str) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            given = {"content-length": "2", "x-request-id": "7"}
            status, _, answer = await client.call("POST", path, given, b"{}")
            assert (status, it.router.kept) == (200, [])
            for text in ("0", "1.5m", "-1"):
                more = {**given, "X-Modelsup-Keep-Alive": text}
                status, _, answer = await client.call("POST", path, more, b"{}")
                assert (status, answer["kept"]) == (200, {"x-request-id": "7"})
            assert it.router.kept == [0.0, 90.0, -1.0]
            more["X-Modelsup-Keep-Alive"] = "soon"
            status, _, answer = await client.call("POST", path, more, b"{}")
            assert (status, it.router.worker.begun) == (400, 4)
            assert "X-Modelsup-Keep-Alive: expected a duration" in answer["error"]

    run(test())


def test_unknown_paths_and_methods() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            status, _, answer = await client.call("GET", "/v1/models/m:explain")
            assert (status, list(answer)) == (404, ["error"])
            status, headers, answer = await client.call("GET", "/v1/models/m:predict")
            assert (status, headers["allow"], list(answer)) == (405, "POST", ["error"])
            status, headers, _ = await client.call("POST", "/v1/models/m")
            assert (status, headers["allow"]) == (405, "GET, HEAD")

    run(test())


@pytest.mark.parametrize(
    ("error", "status", "retry"),
    [
        (UnknownModel("no model 'm'", model="m"), 404, None),
        (QueueFull("the queue of m is full", model="m"), 429, "1"),
        (Restarting("m restarts", model="m"), 503, "1"),
        (LoadFailed("bad file", model="m", failure=Failure("bad_model", "bad file")), 422, None),
        (LoadFailed("killed", model="m", failure=Failure("host_oom", "killed")), 503, "5"),
    ],
)
def test_errors_of_the_fleet(error: Exception, status: int, retry: str | None) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.error = error
            client = await it.connect()
            for path in ("/v1/models/m:predict", "/v2/models/m/infer", "/clients/john/predict"):
                found, headers, answer = await client.call("POST", path, body=b"{}")
                assert (found, headers.get("retry-after")) == (status, retry)
                assert answer == {"error": str(error)}

    run(test())


def test_a_failure_of_our_own_tells_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.error = RuntimeError("the password is 7")
            client = await it.connect()
            status, _, answer = await client.call("POST", "/v1/models/m:predict", body=b"{}")
            assert status == 500
            assert "7" not in answer["error"]

    run(test())
    assert "the password is 7" in caplog.text


def test_a_label_leads_to_its_version() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.views["m"] = view("m", options=Options(labels={"new": "1", "old": "0"}))
            client = await it.connect()
            for path in ("/v1/models/m/labels/new:predict", "/v1/models/m/labels/new:classify"):
                assert (await client.call("POST", path, body=b"{}"))[0] == 200
            _, _, answer = await client.call("GET", "/v1/models/m/labels/new")
            assert [s["version"] for s in answer["model_version_status"]] == ["1"]
            assert (await client.call("GET", "/v1/models/m/labels/old"))[0] == 404
            status, _, answer = await client.call("POST", "/v1/models/m/labels/other:predict")
            assert (status, "'other'" in answer["error"]) == (404, True)

    run(test())


def test_statistics_are_those_of_the_worker() -> None:
    asked: list[bytes] = []

    async def worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(await reader.readuntil(b"\r\n"))
            await reader.readuntil(b"\r\n\r\n")
            body = b'{"name":"m","inference_count":7,"waiting":2}'
            writer.write(head_of(len(body)) + body)

    async def test() -> None:
        async with stack(worker) as it:
            it.router.views["cold"] = view("cold", "unloaded", versions=())
            client = await it.connect()
            it.router.queued = 3  # beside those that wait in the worker
            told = {"model_stats": [{"name": "m", "inference_count": 7, "waiting": 5}]}
            for path in ("/v2/models/m/stats", "/v2/models/m/versions/1/stats", "/v2/models/stats"):
                assert (await client.call("GET", path))[::2] == (200, told)
            status, _, answer = await client.call("GET", "/v2/models/cold/stats")
            assert (status, "'cold' is not loaded" in answer["error"]) == (404, True)
            assert (await client.call("GET", "/v2/models/no/stats"))[0] == 404
            assert (await client.call("GET", "/v2/models/m/versions/9/stats"))[0] == 404
            assert it.worker.begun == 0  # it is no use of the model

    run(test())
    assert set(asked) == {b"GET /stats HTTP/1.1\r\n"}


def test_a_worker_that_tells_no_statistics_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "TIMEOUT", 0.05)

    async def test(handler: Handler, status: int, expected: str) -> None:
        async with stack(handler) as it:
            client = await it.connect()
            found, _, answer = await client.call("GET", "/v2/models/m/stats")
            assert (found, expected in answer["error"]) == (status, True)
            assert (await client.call("GET", "/v2/models/stats"))[2] == {"model_stats": []}

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 No\r\ncontent-length: 2\r\n\r\n{}")

    run(test(silence, 504, "did not tell its statistics within 0.05 s"))
    run(test(dies, 503, "ended"))
    run(test(refuses, 503, "tells no statistics"))


@pytest.mark.parametrize("verb", ["predict", "classify", "regress"])
def test_each_verb_has_its_path_at_the_worker(verb: str) -> None:
    seen: list[bytes] = []

    async def worker(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await reader.readuntil(b"\r\n")).split(b" ")[1])
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    async def test() -> None:
        async with stack(worker) as it:
            client = await it.connect()
            assert (await client.call("POST", f"/v1/models/m:{verb}"))[0] == 200
            assert (await client.call("POST", f"/v1/models/no:{verb}"))[0] == 404

    run(test())
    assert seen == [f"/v1/{verb}".encode()]


def test_a_body_that_promises_too_much_is_refused_unread() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", {"content-length": str(LIMIT + 1)})
            status, headers, _ = await client.answer()
            assert (status, headers["connection"]) == (413, "close")
            client.writer.write_eof()
            assert await client.reader.read() == b""
            assert it.worker.begun == 0

    run(test())


def test_chunks_over_the_limit_are_refused_and_the_worker_is_told() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", {"transfer-encoding": "chunked"})
            piece = b"x" * 100_000
            for _ in range(LIMIT // len(piece) + 1):
                client.writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            status, _, body = await client.answer()
            assert (status, "limit" in json.loads(body)["error"]) == (413, True)
            await closed.wait()
            client.writer.write(b"0\r\n\r\n")
            assert await client.reader.read() == b""
            assert it.worker.ended == [False]

    run(test())


def test_large_bodies_stream_both_ways() -> None:
    size = 3_000_000

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, _, body = await read_request(reader)
            writer.write(head_of(len(body)) + body)
            await writer.drain()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            for byte in (b"a", b"b"):
                client.send("POST", "/v2/models/m/infer", body=byte * size)
                status, headers, body = await client.answer()
                assert (status, headers["content-length"]) == (200, str(size))
                assert body == byte * size
            assert it.worker.ended == [True, True]

    run(test())


def test_an_answer_in_chunks_stays_in_chunks() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n")
        await writer.drain()
        writer.write(b"1\r\nc\r\n0\r\n\r\n")

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            _, headers, _ = await client.answer()
            assert headers["transfer-encoding"] == "chunked"
            chunks = (await client.reader.readuntil(b"\r\n0\r\n\r\n")).split(b"\r\n")[:-3]
            assert b"".join(chunks[1::2]) == b"abc"

    run(test())


def test_a_worker_that_dies_before_its_answer() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            status, headers, answer = await client.call("POST", "/v1/models/m:predict", body=b"{}")
            assert (status, headers["retry-after"], list(answer)) == (503, "1", ["error"])
            assert it.worker.ended == [False]

    run(test())


def test_an_answer_cut_short_cuts_the_clients_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head_of(1_000_000) + b"x" * 1000)

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            with pytest.raises(asyncio.IncompleteReadError):
                await client.answer()
            assert it.worker.ended == [False]

    run(test())


def test_a_silent_worker_is_reported() -> None:
    async def test() -> None:
        async with stack(silence, request_timeout=0.05) as it:
            client = await it.connect()
            status, _, answer = await client.call("POST", "/v1/models/m:predict", body=b"{}")
            assert (status, "request_timeout" in answer["error"]) == (504, True)
            assert it.router.hung == [it.worker]
            assert it.worker.ended == [False]

    run(test())


def test_a_worker_that_stops_in_the_middle_is_reported() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head_of(1_000_000) + b"x" * 1000)
        await reader.read()

    async def test() -> None:
        async with stack(handle, request_timeout=0.05) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            with pytest.raises(asyncio.IncompleteReadError):
                await client.answer()
            assert it.router.hung == [it.worker]

    run(test())


@pytest.mark.parametrize("sent", [0, 10, HELD + 10])
def test_a_client_that_stops_sending_is_not_the_workers_fault(sent: int) -> None:
    async def test() -> None:
        async with stack(silence, request_timeout=0.05) as it:
            client = await it.connect()
            length = {"content-length": str(HELD * 2)}
            client.send("POST", "/v1/models/m:predict", length, b"x" * sent)
            status, _, body = await client.answer()
            assert (status, "client sent nothing" in json.loads(body)["error"]) == (504, True)
            assert it.router.hung == []
            client.writer.write_eof()
            assert await client.reader.read() == b""

    run(test())


def test_a_client_that_goes_takes_back_its_wish_for_a_load() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.loading = asyncio.get_running_loop().create_future()
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            await it.router.asked.wait()
            client.writer.close()
            await it.router.withdrawn.wait()
            assert it.worker.begun == 0

    run(test())


def test_a_load_is_waited_for_and_the_body_is_still_whole() -> None:
    size = HELD + 500_000

    async def test() -> None:
        async with stack(echo) as it:
            it.router.loading = loading = asyncio.get_running_loop().create_future()
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"x" * size)
            await it.router.asked.wait()
            loading.set_result(None)
            status, _, body = await client.answer()
            assert status == 200
            assert json.loads(body)["body"] == "x" * size

    run(test())


def test_what_waits_for_a_load_is_bounded() -> None:
    piece = b"x" * 65536

    async def test() -> None:
        worker = Worker(HttpUpstream("127.0.0.1", 1, "secret"))
        router = Router(worker)
        router.loading = asyncio.get_running_loop().create_future()
        received = 0

        async def receive() -> dict[str, Any]:
            nonlocal received
            received += len(piece)
            await asyncio.sleep(0)
            return {"type": "http.request", "body": piece, "more_body": True}

        async def send(message: Any) -> None:
            raise AssertionError(message)

        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/models/m:predict",
            "raw_path": b"/v1/models/m:predict",
            "headers": [(b"transfer-encoding", b"chunked")],
        }
        gateway = Gateway(router, Limits(max_body_size=1 << 40, request_timeout=60.0))
        task = asyncio.create_task(gateway(scope, receive, send))
        for _ in range(10 * HELD // len(piece)):
            await asyncio.sleep(0)
        assert received <= HELD + len(piece)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert router.withdrawn.is_set()

    run(test())


def test_a_client_that_goes_during_the_prediction_is_told_to_the_worker() -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()
        closed.set()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            await arrived.wait()
            client.writer.close()
            await closed.wait()
            await it.worker.idle.wait()
            assert it.worker.ended == [False]

    run(test())


@pytest.mark.parametrize("sent", [HELD + 1, HELD * 3])
def test_a_client_that_goes_in_the_middle_of_its_body(sent: int) -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        await reader.read()
        closed.set()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            length = {"content-length": str(HELD * 4)}
            client.send("POST", "/v1/models/m:predict", length, b"x" * sent)
            await arrived.wait()
            client.writer.close()
            await closed.wait()
            await it.worker.idle.wait()
            assert it.worker.ended == [False]

    run(test())


def test_a_client_that_goes_in_the_middle_of_the_answer() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head_of(1_000_000) + b"x" * 1000)
        await reader.read()
        closed.set()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            await client.reader.readuntil(b"xxx")
            client.writer.close()
            await closed.wait()
            await it.worker.idle.wait()
            assert it.worker.ended == [False]

    run(test())


def test_a_client_that_does_not_read_is_not_the_workers_fault() -> None:
    size = 50_000_000  # bytes, more than all buffers on the way hold
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head_of(size))
        with suppress(ConnectionError):
            for _ in range(size // 100_000):
                writer.write(bytes(100_000))
                await writer.drain()
        closed.set()

    async def test() -> None:
        async with stack(handle, request_timeout=0.1) as it:
            client = await it.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send("POST", "/v1/models/m:predict", body=b"{}")
            await closed.wait()
            await it.worker.idle.wait()
            assert it.worker.ended == [False]
            assert it.router.hung == []

    run(test())


def test_an_answer_before_the_body_is_whole_reaches_the_client() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head_of(len(ANSWER), "400 Bad Request") + ANSWER)
        await reader.read()

    async def test() -> None:
        async with stack(handle) as it:
            client = await it.connect()
            length = {"content-length": str(HELD * 4)}
            client.send("POST", "/v1/models/m:predict", length, b"x" * HELD * 2)
            status, headers, body = await client.answer()
            assert (status, headers["connection"], body) == (400, "close", ANSWER)
            client.writer.write(b"x" * HELD * 2)
            assert await client.reader.read() == b""
            assert it.worker.ended == [True]

    run(test())


def test_expect_100_continue_is_answered_here() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            headers = {"expect": "100-continue", "content-length": "2"}
            client.send("POST", "/v1/models/m:predict", headers)
            assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            client.writer.write(b"{}")
            status, _, body = await client.answer()
            assert (status, json.loads(body)["body"]) == (200, "{}")

    run(test())


def test_status_and_metadata_of_v1() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            status, _, answer = await client.call("GET", "/v1/models/m")
            assert status == 200
            assert answer["model_version_status"][0]["state"] == "AVAILABLE"
            status, _, answer = await client.call("GET", "/v1/models/m/metadata")
            assert status == 200
            assert answer["model_spec"] == {"name": "m", "signature_name": "", "version": "1"}
            status, _, answer = await client.call("GET", "/v1/models/no")
            assert (status, answer) == (
                404,
                {"error": "Could not find any versions of model no"},
            )
            for path in ("/v1/models/m/versions/9", "/v1/models/m/labels/new"):
                assert (await client.call("GET", path))[0] == 404

    run(test())


def test_asking_for_metadata_loads_a_model_whose_signatures_are_unknown() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.views["m"] = view("m", "unloaded", signatures=None)
            it.router.loading = loading = asyncio.get_running_loop().create_future()
            client = await it.connect()
            client.send("GET", "/v2/models/m")
            await it.router.asked.wait()
            it.router.views["m"] = view("m")
            loading.set_result(None)
            status, _, body = await client.answer()
            assert (status, json.loads(body)["inputs"][0]["datatype"]) == (200, "FP32")

    run(test())


def test_without_autoload_unknown_signatures_are_not_found() -> None:
    async def test() -> None:
        async with stack(echo, autoload=False) as it:
            it.router.views["m"] = view("m", "unloaded", signatures=None)
            client = await it.connect()
            for path in ("/v2/models/m", "/v1/models/m/metadata"):
                status, _, answer = await client.call("GET", path)
                assert (status, "load it first" in answer["error"]) == (404, True)
            assert not it.router.asked.is_set()

    run(test())


def test_readiness_and_server_metadata_of_v2() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            ready = {"name": "m", "ready": True}
            assert (await client.call("GET", "/v2/models/m/ready"))[::2] == (200, ready)
            it.router.loading = asyncio.get_running_loop().create_future()
            status, _, answer = await client.call("GET", "/v2/models/m/ready")
            assert (status, answer) == (503, {"name": "m", "ready": False})
            assert (await client.call("GET", "/v2/models/no/ready"))[0] == 404
            assert (await client.call("GET", "/v2/health/live"))[::2] == (200, {"live": True})
            assert (await client.call("GET", "/v2/health/ready"))[::2] == (200, {"ready": True})
            _, _, answer = await client.call("GET", "/v2")
            assert answer["name"] == "modelsup"
            assert {"binary_tensor_data", "statistics"} <= set(answer["extensions"])

    run(test())


def test_the_repository_of_v2() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.views["cold"] = view("cold", "unloaded")
            client = await it.connect()
            _, _, answer = await client.call("POST", "/v2/repository/index")
            assert [(m["name"], m["state"]) for m in answer] == [
                ("m", "READY"),
                ("cold", "UNAVAILABLE"),
            ]
            _, _, answer = await client.call(
                "POST", "/v2/repository/index", body=b'{"ready": true}'
            )
            assert [m["name"] for m in answer] == ["m"]
            for body in (b'{"ready": 1}', b" ", b"[]"):
                status, _, _ = await client.call("POST", "/v2/repository/index", body=body)
                assert status == 400
            for name in ("m", "cold"):
                for verb in ("load", "unload"):
                    path = f"/v2/repository/models/{name}/{verb}"
                    assert (await client.call("POST", path, body=b"{}"))[::2] == (200, {})
            assert it.router.acts == [
                ("load", "m"),
                ("unload", "m"),
                ("load", "cold"),
                ("unload", "cold"),
            ]

    run(test())


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"parameters": {"config": "x"}}', b" " * 70_000 + b"{}"]
)
def test_a_repository_load_with_what_it_cannot_use(body: bytes) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            path = "/v2/repository/models/m/load"
            status, _, answer = await client.call("POST", path, body=body)
            assert (status, list(answer)) == (400, ["error"])
            assert it.router.acts == []

    run(test())
