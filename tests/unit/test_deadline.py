"""A request has the time that its client gave it, whatever it waits for, and no more."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.unit.gateway_stack import echo, head_of, read_request, run, silence, stack

if TYPE_CHECKING:
    from tests.unit.gateway_stack import Headers

PATH = "/v1/models/m:predict"


def limited(seconds: str, length: int = 2) -> Headers:
    return {"content-length": str(length), "X-Request-Timeout": seconds}


def test_a_load_counts() -> None:
    async def test() -> None:
        async with stack(echo) as it:
            it.router.loading = asyncio.get_running_loop().create_future()
            client = await it.connect()
            status, headers, answer = await client.call("POST", PATH, limited("0.05"), b"{}")
            assert (status, headers["x-modelsup-error"]) == (504, "deadline_exceeded")
            assert "0.05 s of the request are up; it waits for its model" in answer["error"]
            await it.router.withdrawn.wait()
            assert (it.worker.begun, it.router.overdue) == (0, [])

    run(test())


def test_what_the_worker_has_not_answered_is_taken_back_and_told() -> None:
    gone = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        assert await reader.read() == b""
        gone.set()

    async def test() -> None:
        async with stack(never) as it:
            client = await it.connect()
            status, _, answer = await client.call("POST", PATH, limited("0.05"), b"{}")
            assert (status, "the worker has not answered yet" in answer["error"]) == (504, True)
            await gone.wait()
            assert it.worker.ended == [False]
            assert (it.router.overdue, it.router.hung) == ([it.worker], [])

    run(test())


def test_a_body_that_comes_too_slowly() -> None:
    async def test() -> None:
        async with stack(silence) as it:
            client = await it.connect()
            client.send("POST", PATH, limited("0.05", length=10), b"{")
            status, _, body = await client.answer()
            assert (status, "its body is not all here" in json.loads(body)["error"]) == (504, True)
            assert (it.worker.begun, it.router.overdue) == (0, [])

    run(test())


def test_an_answer_that_has_begun_is_cut() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(head_of(1_000_000) + b"x" * 1000)
        await reader.read()

    async def test() -> None:
        async with stack(slow) as it:
            client = await it.connect()
            client.send("POST", PATH, limited("0.05"), b"{}")
            with pytest.raises(asyncio.IncompleteReadError):
                await client.answer()
            assert it.worker.ended == [False]

    run(test())


@pytest.mark.parametrize("seconds", ["60", "0.5", "999999999.999999999"])
def test_enough_time_changes_nothing(seconds: str) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            for _ in range(2):
                status, _, answer = await client.call("POST", PATH, limited(seconds), b"{}")
                assert (status, answer["kept"]) == (200, {})

    run(test())


@pytest.mark.parametrize("seconds", ["", "soon", "-1", "1e3", "nan", "inf", "1,5", "5s", "1" * 10])
def test_a_time_that_is_none_is_refused(seconds: str) -> None:
    async def test() -> None:
        async with stack(echo) as it:
            client = await it.connect()
            status, headers, answer = await client.call("POST", PATH, limited(seconds), b"{}")
            assert (status, headers["x-modelsup-error"]) == (400, "bad_request")
            assert "X-Request-Timeout: expected seconds such as 2.5" in answer["error"]
            assert it.worker.begun == 0

    run(test())
