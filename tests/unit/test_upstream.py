"""The HTTP client side towards a worker: against scripted sockets, and a transport of our own."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters.http_connection import MAX_HEAD, MAX_HELD, Connection
from modelsup.supervisor.adapters.http_headers import request_head
from modelsup.supervisor.adapters.upstream import HttpUpstream
from modelsup.supervisor.errors import Invalid, NotSent, WorkerDied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine

    Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
SECRET = "s3cret"
JSON = [(b"content-type", b"application/json")]


def run(test: Coroutine[Any, Any, None]) -> None:
    """Run one asynchronous test."""
    asyncio.run(asyncio.wait_for(test, 20))


@asynccontextmanager
async def worker(handler: Handler) -> AsyncIterator[HttpUpstream]:
    """Serve with `handler`, and give an upstream to it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = HttpUpstream("127.0.0.1", server.sockets[0].getsockname()[1], SECRET)
    try:
        yield upstream
    finally:
        upstream.close()
        server.close()


async def read_head(reader: asyncio.StreamReader) -> list[bytes]:
    """Return the lines of one request's head."""
    return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]


async def read_request(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    """Return head and body of a request that has a content-length."""
    head = await read_head(reader)
    length = next(int(line.split(b": ")[1]) for line in head if line.startswith(b"content-length"))
    return head, await reader.readexactly(length)


async def body_of(response: Any) -> bytes:
    """Read an answer to its end."""
    return b"".join([piece async for piece in response.chunks()])


class Owner:
    """A pool that takes notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def released(self, connection: Connection) -> None:
        self.notes.append("released")

    def lost(self, connection: Connection) -> None:
        self.notes.append("lost")


class Wire(asyncio.Transport):
    """A transport that keeps what is written and notes pauses."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.pauses: list[str] = []
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, pieces: Any) -> None:
        for piece in pieces:
            self.write(piece)

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        self.pauses.append("pause")

    def resume_reading(self) -> None:
        self.pauses.append("resume")


def connect() -> tuple[Connection, Wire, Owner]:
    """Return a connection whose bytes a test moves by hand."""
    owner, wire = Owner(), Wire()
    connection = Connection(owner)
    connection.connection_made(wire)
    return connection, wire, owner


async def begin(connection: Connection) -> asyncio.Task[Any]:
    """Start an exchange and let it run up to its wait."""
    task = asyncio.create_task(connection.exchange(b"POST / HTTP/1.1\r\n\r\n", b""))
    await asyncio.sleep(0)
    return task


def test_a_request_arrives_with_its_length_and_the_secret() -> None:
    seen: list[Any] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await read_request(reader))
        writer.write(OK)

    async def test() -> None:
        async with worker(handle) as upstream:
            response = await upstream.exchange(b"POST", b"/v1/predict", JSON, b"{}", None)
            assert response.status == 200
            assert response.headers == [(b"content-type", b"text/plain"), (b"content-length", b"5")]
            assert await body_of(response) == b"hello"

    run(test())
    head, body = seen[0]
    assert head[0] == b"POST /v1/predict HTTP/1.1"
    assert head[2:] == [
        b"x-modelsup-secret: s3cret",
        b"content-type: application/json",
        b"content-length: 2",
    ]
    assert body == b"{}"


def test_headers_of_one_hop_and_credentials_stay_behind() -> None:
    head = request_head(
        b"POST / HTTP/1.1\r\n",
        [
            (b"Connection", b"X-Mine, keep-alive"),
            (b"x-mine", b"1"),
            (b"keep-alive", b"timeout=5"),
            (b"te", b"trailers"),
            (b"trailer", b"x"),
            (b"transfer-encoding", b"chunked"),
            (b"upgrade", b"websocket"),
            (b"proxy-authorization", b"Basic x"),
            (b"authorization", b"Bearer x"),
            (b"cookie", b"a=b"),
            (b"expect", b"100-continue"),
            (b"host", b"example.org"),
            (b"X-Modelsup-Secret", b"guess"),
            (b"content-length", b"99"),
            (b"Traceparent", b"00-1-2-03"),
            (b"x-request-id", b"7"),
        ],
        3,
    )
    assert head == (
        b"POST / HTTP/1.1\r\ntraceparent: 00-1-2-03\r\nx-request-id: 7\r\ncontent-length: 3\r\n\r\n"
    )


@pytest.mark.parametrize(
    "header",
    [
        (b"x-a", b"1\r\nx-modelsup-secret: guess"),
        (b"x-a", b"1\nx-b: 2"),
        (b"x-a", b"1\rx"),
        (b"x-a", b"\0"),
        (b"x-modelsup-secret: guess\r\nx-a", b"1"),
        (b"x-modelsup-secret:", b"guess"),
        (b"x a", b"1"),
        (b"", b"1"),
    ],
)
def test_no_header_can_break_out_of_its_line(header: tuple[bytes, bytes]) -> None:
    with pytest.raises(Invalid):
        request_head(b"POST / HTTP/1.1\r\n", [header], 0)


def test_an_answer_may_arrive_split_anywhere() -> None:
    async def test() -> None:
        for cut in range(1, len(OK)):
            connection, _, owner = connect()
            task = await begin(connection)
            connection.data_received(OK[:cut])
            connection.data_received(OK[cut:])
            response = await task
            assert (response.status, response.whole) == (200, b"hello")
            assert owner.notes == ["released"]

    run(test())


def test_a_chunked_answer_may_arrive_byte_by_byte() -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nX-Kept: a\r\nserver: w\r\n"
        b"connection: x-hop\r\nx-hop: 1\r\n\r\n3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n"
    )

    async def test() -> None:
        connection, _, owner = connect()
        task = await begin(connection)
        for number in range(len(answer)):
            connection.data_received(answer[number : number + 1])
        response = await task
        assert response.headers == [(b"x-kept", b"a")]
        assert await body_of(response) == b"hello"
        assert owner.notes == ["released"]

    run(test())


def test_an_interim_answer_is_passed_over() -> None:
    async def test() -> None:
        connection, _, _ = connect()
        task = await begin(connection)
        connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)
        assert (await task).whole == b"hello"

    run(test())


def test_a_connection_is_used_again() -> None:
    connections = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        while True:
            await read_request(reader)
            writer.write(OK)

    async def test() -> None:
        async with worker(handle) as upstream:
            for _ in range(3):
                assert (await upstream.exchange(b"POST", b"/", [], b"", None)).whole == b"hello"

    run(test())
    assert len(connections) == 1


@pytest.mark.parametrize("extra", [b"HTTP/1.1 200 OK\r\n", b"junk", OK])
def test_bytes_after_the_answer_end_the_connection(extra: bytes) -> None:
    async def test() -> None:
        connection, wire, owner = connect()
        task = await begin(connection)
        connection.data_received(OK + extra)
        await asyncio.wait((task,))
        assert task.exception() is None or isinstance(task.exception(), WorkerDied)
        assert wire.aborted
        assert owner.notes == ["lost"]

    run(test())


def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    async def test() -> None:
        connection, wire, owner = connect()
        task = await begin(connection)
        connection.data_received(OK)
        await task
        connection.data_received(b"x")
        assert wire.aborted
        assert owner.notes == ["released", "lost"]

    run(test())


def test_connection_close_is_obeyed() -> None:
    async def test() -> None:
        connection, wire, owner = connect()
        task = await begin(connection)
        connection.data_received(OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert (await task).whole == b"hello"
        assert wire.aborted
        assert owner.notes == ["lost"]

    run(test())


def test_half_a_large_answer_raises_while_it_is_read() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)

    async def test() -> None:
        async with worker(handle) as upstream:
            response = await upstream.exchange(b"POST", b"/", [], b"", None)
            assert response.whole is None
            chunks = response.chunks()
            assert await anext(chunks) == b"x" * 1000
            with pytest.raises(WorkerDied, match="middle of its answer"):
                await anext(chunks)

    run(test())


def test_half_a_small_answer_is_no_answer() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK[:-1])

    async def test() -> None:
        async with worker(handle) as upstream:
            with pytest.raises(WorkerDied):
                await upstream.exchange(b"POST", b"/", [], b"", None)

    run(test())


def test_an_answer_without_an_end_is_not_taken_for_whole() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nsome")

    async def test() -> None:
        async with worker(handle) as upstream:
            response = await upstream.exchange(b"POST", b"/", [], b"", None)
            with pytest.raises(WorkerDied):
                await body_of(response)

    run(test())


def test_a_dead_idle_connection_is_replaced_once() -> None:
    requests: list[Any] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = not requests
        requests.append((await read_request(reader))[1])
        writer.write(OK)
        if first:
            requests.append((await read_request(reader))[1])  # and closes without an answer

    async def test() -> None:
        async with worker(handle) as upstream:
            for body in (b"1", b"2"):
                response = await upstream.exchange(b"POST", b"/", [], body, None)
                assert response.whole == b"hello"

    run(test())
    assert requests == [b"1", b"2", b"2"]


def test_a_request_is_not_repeated_once_anything_was_heard() -> None:
    requests: list[Any] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await read_request(reader))
        writer.write(OK)
        requests.append(await read_request(reader))
        writer.write(b"HTTP/1.1 2")

    async def test() -> None:
        async with worker(handle) as upstream:
            await upstream.exchange(b"POST", b"/", [], b"1", None)
            with pytest.raises(WorkerDied):
                await upstream.exchange(b"POST", b"/", [], b"2", None)

    run(test())
    assert len(requests) == 2


def test_a_fresh_connection_that_dies_is_not_tried_again() -> None:
    connections = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        await read_request(reader)

    async def test() -> None:
        async with worker(handle) as upstream:
            with pytest.raises(WorkerDied):
                await upstream.exchange(b"POST", b"/", [], b"", None)

    run(test())
    assert len(connections) == 1


def test_nobody_listens() -> None:
    async def test() -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(NotSent, match="takes no connection"):
            await HttpUpstream("127.0.0.1", port, SECRET).exchange(b"POST", b"/", [], b"", None)

    run(test())


def test_what_a_worker_may_have_died_of_counts_as_sent() -> None:
    """It went over a kept connection, which ended; that nobody listens any more comes after."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        await read_request(reader)
        server.close()
        writer.close()

    async def test() -> None:
        nonlocal server
        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        upstream = HttpUpstream("127.0.0.1", server.sockets[0].getsockname()[1], SECRET)
        await upstream.exchange(b"POST", b"/", [], b"1", None)
        with pytest.raises(WorkerDied) as died:
            await upstream.exchange(b"POST", b"/", [], b"2", None)
        assert not isinstance(died.value, NotSent)
        upstream.close()

    server: asyncio.Server
    run(test())


@pytest.mark.parametrize(
    "answer",
    [
        b"SMTP ready\r\n",
        b"HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: " + b"x" * MAX_HEAD,
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
    ],
)
def test_what_is_no_usable_answer_ends_the_exchange(answer: bytes) -> None:
    async def test() -> None:
        connection, wire, owner = connect()
        task = await begin(connection)
        connection.data_received(answer)
        with pytest.raises(WorkerDied):
            await task
        assert wire.aborted
        assert owner.notes == ["lost"]

    run(test())


def test_reading_pauses_while_the_answer_is_not_consumed() -> None:
    piece = b"x" * (MAX_HELD // 2)

    async def test() -> None:
        connection, wire, _ = connect()
        task = await begin(connection)
        head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (4 * len(piece))
        connection.data_received(head)
        response = await task
        for _ in range(2):
            connection.data_received(piece)
        assert wire.pauses == []
        connection.data_received(piece)
        assert wire.pauses == ["pause"]
        chunks = response.chunks()
        assert await anext(chunks) == piece
        assert wire.pauses == ["pause", "resume"]
        connection.data_received(piece)
        assert b"".join([rest async for rest in chunks]) == piece * 3
        assert wire.pauses[-1] == "resume"

    run(test())


def test_a_large_answer_comes_through_whole() -> None:
    size = 20_000_000

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size)
        writer.write(bytes(size))
        await writer.drain()
        await read_request(reader)
        writer.write(OK)

    async def test() -> None:
        async with worker(handle) as upstream:
            response = await upstream.exchange(b"POST", b"/", [], b"", None)
            assert sum([len(piece) async for piece in response.chunks()]) == size
            again = await upstream.exchange(b"POST", b"/", [], b"", None)
            assert again.whole == b"hello"

    run(test())


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    """Yield the rest of a body."""
    for part in parts:
        yield part


def test_a_long_body_is_sent_with_its_length() -> None:
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append((await read_request(reader))[1])
        writer.write(OK)

    async def test() -> None:
        async with worker(handle) as upstream:
            headers = [(b"content-length", b"7")]
            more = pieces(b"cd", b"", b"efg")
            response = await upstream.exchange(b"POST", b"/", headers, b"ab", more)
            assert response.whole == b"hello"

    run(test())
    assert seen == [b"abcdefg"]


def test_a_body_of_unknown_length_is_sent_in_chunks() -> None:
    seen: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        assert head[-1] == b"transfer-encoding: chunked"
        seen.append(await reader.readuntil(b"0\r\n\r\n"))
        writer.write(OK)

    async def test() -> None:
        async with worker(handle) as upstream:
            headers = [(b"transfer-encoding", b"chunked")]
            response = await upstream.exchange(b"POST", b"/", headers, b"ab", pieces(b"c" * 17))
            assert response.whole == b"hello"

    run(test())
    assert seen == [b"2\r\nab\r\n11\r\n" + b"c" * 17 + b"\r\n0\r\n\r\n"]


@pytest.mark.parametrize("length", [b"3", b"5"])
def test_a_body_of_another_length_than_promised_is_refused(length: bytes) -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async def test() -> None:
        async with worker(handle) as upstream:
            with pytest.raises(Invalid, match="content-length"):
                await upstream.exchange(
                    b"POST", b"/", [(b"content-length", length)], b"ab", pieces(b"cd")
                )
            await closed.wait()

    run(test())


def test_what_the_body_raises_is_raised_and_closes_the_connection() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        closed.set()

    async def broken() -> AsyncIterator[bytes]:
        yield b"c"
        raise KeyError("the client has gone")

    async def test() -> None:
        async with worker(handle) as upstream:
            with pytest.raises(KeyError):
                await upstream.exchange(b"POST", b"/", [(b"content-length", b"9")], b"", broken())
            await closed.wait()

    run(test())


def test_an_answer_may_come_before_the_request_is_whole() -> None:
    closed = asyncio.Event()
    body_ended = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_head(reader)
        writer.write(OK.replace(b"200 OK", b"413 Too Large"))
        await reader.read()
        closed.set()

    async def endless() -> AsyncIterator[bytes]:
        try:
            yield b"ab"
            await asyncio.get_running_loop().create_future()
        finally:
            body_ended.set()

    async def test() -> None:
        async with worker(handle) as upstream:
            headers = [(b"content-length", b"99")]
            response = await upstream.exchange(b"POST", b"/", headers, b"", endless())
            assert (response.status, response.whole) == (413, b"hello")
            await body_ended.wait()
            await closed.wait()

    run(test())


def test_sending_waits_while_the_worker_does_not_read() -> None:
    async def test() -> None:
        connection, wire, _ = connect()
        connection.pause_writing()
        task = asyncio.create_task(
            connection.exchange_streaming(b"head ", b"first", pieces(b"second"), 11)
        )
        for _ in range(10):
            await asyncio.sleep(0)
        assert wire.written == b"head first"
        connection.resume_writing()
        for _ in range(10):
            await asyncio.sleep(0)
        assert wire.written == b"head firstsecond"
        connection.data_received(OK)
        assert (await task).whole == b"hello"

    run(test())


def test_a_cancelled_exchange_closes_its_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()
        closed.set()

    arrived, closed = asyncio.Event(), asyncio.Event()

    async def test() -> None:
        async with worker(handle) as upstream:
            task = asyncio.create_task(upstream.exchange(b"POST", b"/", [], b"", None))
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await closed.wait()

    run(test())


def test_cancelling_after_the_answer_spares_the_next_exchange_on_the_connection() -> None:
    async def test() -> None:
        connection, wire, _ = connect()
        first = await begin(connection)
        connection.data_received(OK)
        second = asyncio.create_task(connection.exchange(b"POST / HTTP/1.1\r\n\r\n", b""))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        assert not wire.aborted
        connection.data_received(OK)
        assert (await second).whole == b"hello"

    run(test())


def test_giving_up_an_answer_closes_its_connection() -> None:
    closed = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        await reader.read()
        closed.set()

    async def test() -> None:
        async with worker(handle) as upstream:
            (await upstream.exchange(b"POST", b"/", [], b"", None)).close()
            await closed.wait()

    run(test())


def test_closing_the_upstream_wakes_those_who_wait() -> None:
    arrived = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        arrived.set()
        await reader.read()

    async def test() -> None:
        async with worker(handle) as upstream:
            task = asyncio.create_task(upstream.exchange(b"POST", b"/", [], b"", None))
            await arrived.wait()
            upstream.close()
            with pytest.raises(WorkerDied):
                await task
            with pytest.raises(WorkerDied, match="stopping"):
                await upstream.exchange(b"POST", b"/", [], b"", None)

    run(test())
