"""A request whose worker died goes to another one: once, and only where that is safe."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters.upstream import HttpUpstream
from modelsup.supervisor.domain import Failure
from modelsup.supervisor.http.request_body import HELD

from tests.unit.gateway_stack import Worker, echo, read_request, run, stack

if TYPE_CHECKING:
    from tests.unit.gateway_stack import Handler, Stack

PATH = "/v1/models/m:predict"
CRASH = Failure("signal:11", "the worker crashed (SIGSEGV)")


def dying(deaths: int) -> Handler:
    """Return a worker that dies of the first requests it gets, and then answers."""
    left = deaths

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        if left:
            left -= 1
            await read_request(reader)
            return
        await echo(reader, writer)

    return handle


async def post(it: Stack, body: bytes = b"{}") -> tuple[int, Any]:
    client = await it.connect()
    status, _, answer = await client.call("POST", PATH, body=body)
    return status, answer


@pytest.mark.parametrize("size", [2, HELD])
def test_another_worker_answers(size: int) -> None:
    async def test() -> None:
        async with stack(dying(1)) as it:
            it.worker.failure = CRASH
            status, answer = await post(it, b"x" * size)
            assert (status, answer["body"]) == (200, "x" * size)
            assert it.worker.ended == [False, True]

    run(test())


def test_what_two_workers_died_of_is_not_tried_again() -> None:
    async def test() -> None:
        async with stack(dying(5)) as it:
            it.worker.failure = CRASH
            status, answer = await post(it)
            assert (status, it.worker.ended) == (503, [False, False])
            assert answer["error"].startswith("at the second try, the worker ended before it")
            assert answer["error"].endswith("(the worker crashed (SIGSEGV))")

    run(test())


@pytest.mark.parametrize("why", ["it is off", "it was told to stop", "too large"])
def test_when_it_is_not_tried_again(why: str) -> None:
    async def test() -> None:
        async with stack(dying(1)) as it:
            it.worker.failure = None if why == "it was told to stop" else CRASH
            it.router.retry = why != "it is off"
            size = 4 * HELD if why == "too large" else 2
            status, answer = await post(it, b"x" * size)
            assert (status, it.worker.ended) == (503, [False])
            assert "second" not in answer["error"]

    run(test())


def test_a_worker_that_has_not_seen_the_request_is_no_try() -> None:
    """Those who wait for a worker that somebody else kills may meet with that more than once."""

    async def test() -> None:
        async with stack(dying(1)) as it:
            it.worker.failure = CRASH
            with socket.socket() as nobody:
                nobody.bind(("127.0.0.1", 0))
                dead = Worker(HttpUpstream("127.0.0.1", nobody.getsockname()[1], "secret"))
                dead.failure = CRASH
                it.router.before = [dead] * 3
                status, answer = await post(it)
            assert (status, answer["body"]) == (200, "{}")
            assert (dead.ended, it.worker.ended) == ([False] * 3, [False, True])

    run(test())


def test_the_time_of_a_request_goes_on_while_it_waits_for_another_worker() -> None:
    async def test() -> None:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_request(reader)
            it.router.loading = asyncio.get_running_loop().create_future()

        async with stack(handle) as it:
            it.worker.failure = CRASH
            client = await it.connect()
            limit = {"content-length": "2", "X-Request-Timeout": "0.1"}
            status, headers, _ = await client.call("POST", PATH, limit, b"{}")
            assert (status, headers["x-modelsup-error"]) == (504, "deadline_exceeded")
            await it.router.withdrawn.wait()

    run(test())
