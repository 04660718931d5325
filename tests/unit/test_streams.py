"""Followed logs: the tail, then each new line, until the client or the supervisor goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from modelsup.supervisor.errors import UnknownModel
from modelsup.supervisor.http.streams import LogStreams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Line:
    def __init__(self, text: str) -> None:
        self.text = text


class Feed:
    """Lines put in by the test; None ends it."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[Line | None] = asyncio.Queue()
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[Line]:
        while (line := await self.lines.get()) is not None:
            yield line

    def close(self) -> None:
        self.closed = True


class Logs:
    def __init__(self) -> None:
        self.feed = Feed()

    def tail(self, model: str, count: int) -> list[Line]:
        return [Line("one"), Line("two"), Line("three")][-count:] if count else []

    def subscribe(self, model: str) -> Feed:
        return self.feed


class Fleet:
    def model(self, name: str) -> object:
        if name != "m":
            raise UnknownModel(f"no model {name!r}", model=name)
        return name


class Connection:
    """One HTTP request as the server gives it to the application."""

    def __init__(self, query: bytes = b"follow=1", name: str = "m", method: str = "GET") -> None:
        path = f"/api/models/{name}/logs"
        self.scope = {"type": "http", "method": method, "path": path, "query_string": query}
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    def follow(self, streams: LogStreams) -> asyncio.Task[None]:
        return asyncio.ensure_future(streams(self.scope, self.receive, self.sent.put))

    async def body(self) -> bytes:
        message = await self.sent.get()
        assert message["type"] == "http.response.body"
        body: bytes = message["body"]
        return body


@pytest.mark.parametrize(
    ("query", "name", "method", "taken"),
    [
        (b"follow=1", "m", "GET", True),
        (b"tail=5&follow=true", "m", "GET", True),
        (b"follow=0", "m", "GET", False),
        (b"follow=", "m", "GET", False),
        (b"", "m", "GET", False),
        (b"follow=1", "m", "POST", False),
        (b"follow=1", "a/b", "GET", False),
    ],
)
def test_only_followed_logs_are_taken(query: bytes, name: str, method: str, taken: bool) -> None:
    async def run() -> None:
        connection = Connection(query, name, method)
        assert LogStreams(Fleet(), Logs()).takes(connection.scope) is taken

    asyncio.run(run())


def test_the_tail_comes_first_and_lines_follow_until_the_client_goes() -> None:
    async def run() -> None:
        logs, connection = Logs(), Connection(b"tail=2&follow=1")
        task = connection.follow(LogStreams(Fleet(), logs))
        head = await connection.sent.get()
        assert head["status"] == 200
        assert (b"content-type", b"text/plain; charset=utf-8") in head["headers"]
        assert await connection.body() == b"two\nthree\n"
        logs.feed.lines.put_nowait(Line("four"))
        assert await connection.body() == b"four\n"
        connection.gone.set()
        await asyncio.wait_for(task, 10)
        assert logs.feed.closed

    asyncio.run(run())


def test_a_line_that_is_no_unicode_does_not_end_the_stream() -> None:
    async def run() -> None:
        logs, connection = Logs(), Connection(b"tail=0&follow=1")
        task = connection.follow(LogStreams(Fleet(), logs))
        await connection.sent.get()
        logs.feed.lines.put_nowait(Line("bad \udcff byte"))
        assert await connection.body() == b"bad ? byte\n"
        logs.feed.lines.put_nowait(None)
        assert await connection.body() == b""
        await asyncio.wait_for(task, 10)

    asyncio.run(run())


def test_close_ends_open_streams_and_later_ones_after_their_tail() -> None:
    async def run() -> None:
        logs = Logs()
        streams = LogStreams(Fleet(), logs)
        open_one, later = Connection(), Connection()
        task = open_one.follow(streams)
        await open_one.sent.get()
        streams.close()
        await asyncio.wait_for(task, 10)
        assert logs.feed.closed
        await asyncio.wait_for(later.follow(streams), 10)
        assert later.sent.get_nowait()["status"] == 200
        assert later.sent.get_nowait()["body"] == b"one\ntwo\nthree\n"
        assert later.sent.get_nowait() == {"type": "http.response.body", "body": b""}

    asyncio.run(run())


def test_a_cancelled_stream_ends_its_subscription() -> None:
    async def run() -> None:
        logs, connection = Logs(), Connection()
        task = connection.follow(LogStreams(Fleet(), logs))
        await connection.sent.get()
        await connection.sent.get()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert logs.feed.closed

    asyncio.run(run())


@pytest.mark.parametrize(
    ("query", "name", "status", "code"),
    [
        (b"follow=1", "no", 404, "unknown_model"),
        (b"follow=1&tail=x", "m", 422, "invalid"),
        (b"follow=1&colour=1", "m", 422, "invalid"),
        (b"follow=1&\xff=1", "m", 422, "invalid"),
    ],
)
def test_refusals_are_problems(query: bytes, name: str, status: int, code: str) -> None:
    async def run() -> None:
        logs, connection = Logs(), Connection(query, name)
        await connection.follow(LogStreams(Fleet(), logs))
        assert connection.sent.get_nowait()["status"] == status
        assert orjson.loads(await connection.body())["code"] == code
        assert not logs.feed.closed

    asyncio.run(run())
