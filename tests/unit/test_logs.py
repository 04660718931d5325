"""Workers' output and the supervisor's own log: bounded, readable, followed."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.adapters.logs import (
    DRAIN_SIZE,
    FOLLOWER_LINES,
    LONGEST_LINE,
    READ_SIZE,
    LogBook,
    LogLine,
    PipeReader,
    configure_logging,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def book() -> LogBook:
    """A book of 5 lines for each model, whose clock counts calls."""
    ticks = itertools.count(1.0)
    return LogBook(5, clock=lambda: next(ticks))


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


def test_lines_are_put_together_from_pieces(book: LogBook) -> None:
    for piece in (b"fi", b"rst\nse", b"", b"cond\r\n", b"\n", b"part"):
        book.append("m", "w1", piece)
    assert book.tail("m", 10) == [
        LogLine(1.0, "w1", "first"),
        LogLine(2.0, "w1", "second"),
        LogLine(3.0, "w1", ""),
    ]
    book.finish("m", "w1")
    book.finish("m", "w1")
    assert texts(book.tail("m", 10)) == ["first", "second", "", "part"]


def test_only_the_last_lines_stay(book: LogBook) -> None:
    book.append("m", "w1", b"".join(b"%d\n" % i for i in range(100)))
    assert texts(book.tail("m", 10)) == ["95", "96", "97", "98", "99"]
    assert texts(book.tail("m", 2)) == ["98", "99"]
    assert book.tail("m", 0) == []
    assert book.tail("other", 10) == []


def test_workers_of_one_model_do_not_mix(book: LogBook) -> None:
    book.append("m", "w1", b"one, ")
    book.append("m", "w2", b"two\n")
    book.append("m", "w1", b"still one\n")
    assert texts(book.tail("m", 10)) == ["two", "one, still one"]
    assert texts(book.tail("m", 10, worker="w1")) == ["one, still one"]


def test_the_last_words_of_a_worker(book: LogBook) -> None:
    book.append("m", "w1", b"a\nb\nlast words")
    book.append("other", "w2", b"c\n")
    assert book.last_lines("w1", 10) == ("a", "b", "last words")
    assert book.last_lines("w1", 2) == ("b", "last words")
    assert book.last_lines("w1", 0) == ()
    assert book.last_lines("w2", 10) == ("c",)
    assert book.last_lines("w3", 10) == ()


def test_a_line_without_end_is_cut(book: LogBook) -> None:
    for _ in range(100):
        book.append("m", "w1", b"x" * 1000)
    assert texts(book.tail("m", 10)) == ["x" * LONGEST_LINE] * 5
    book.append("m", "w1", b"y" * 3 * LONGEST_LINE + b"\n")
    assert max(len(line.text) for line in book.tail("m", 10)) == LONGEST_LINE


def test_bytes_that_are_not_text_are_replaced(book: LogBook) -> None:
    book.append("m", "w1", b"na\xc3")
    book.append("m", "w1", b"\xafve \xff\n")
    assert texts(book.tail("m", 1)) == ["naïve \ufffd"]


def test_a_progress_bar_leaves_its_last_state(book: LogBook) -> None:
    book.append("m", "w1", b"10%\r50%\r100%\r\n")
    assert texts(book.tail("m", 1)) == ["100%"]


def test_a_forgotten_model_leaves_nothing(book: LogBook) -> None:
    book.append("m", "w1", b"a\npartial")
    book.forget("m")
    book.forget("m")
    book.finish("m", "w1")
    assert book.tail("m", 10) == []
    assert book.last_lines("w1", 10) == ()


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
def test_how_output_is_cut_into_pieces_does_not_matter(data: bytes, cuts: list[int]) -> None:
    whole, pieces = LogBook(1000, lambda: 0.0), LogBook(1000, lambda: 0.0)
    whole.append("m", "w", data)
    edges = [0, *sorted(cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        pieces.append("m", "w", data[start:end])
    for book in (whole, pieces):
        book.finish("m", "w")
    assert whole.tail("m", 1000) == pieces.tail("m", 1000)


async def read_all(book: LogBook, model: str) -> list[LogLine]:
    with book.subscribe(model) as follower:
        return [line async for line in follower]


def test_followers_get_what_comes_until_the_end(book: LogBook) -> None:
    async def main() -> list[list[LogLine]]:
        book.append("m", "w1", b"before\n")
        readers = [asyncio.create_task(read_all(book, model)) for model in ("m", "m", "other")]
        await asyncio.sleep(0)
        book.append("m", "w1", b"one\ntwo\n")
        await asyncio.sleep(0)
        book.append("m", "w1", b"three\n")
        book.close()
        return await asyncio.gather(*readers)

    first, second, other = asyncio.run(main())
    assert texts(first) == ["one", "two", "three"]
    assert second == first
    assert other == []


def test_a_slow_follower_loses_the_oldest_and_is_told(book: LogBook) -> None:
    async def main() -> list[LogLine]:
        with book.subscribe("m") as follower:
            for i in range(FOLLOWER_LINES + 7):
                book.append("m", "w1", b"%d\n" % i)
            book.forget("m")
            return [line async for line in follower]

    lines = asyncio.run(main())
    assert lines[0].worker == ""
    assert lines[0].text == "[7 lines left out: the reader is too slow]"
    assert texts(lines[1:]) == [str(i) for i in range(7, FOLLOWER_LINES + 7)]


def test_a_follower_that_left_gets_no_more(book: LogBook) -> None:
    async def main() -> list[LogLine]:
        with book.subscribe("m") as follower:
            pass
        follower.close()
        book.append("m", "w1", b"late\n")
        return [line async for line in follower]

    assert asyncio.run(main()) == []


@pytest.fixture
def pipe() -> tuple[int, int]:
    """A pipe. Its reader owns one end, the test closes the other."""
    return os.pipe()


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def test_a_pipe_is_read_to_its_end(pipe: tuple[int, int]) -> None:
    async def main() -> bytes:
        reader, writer = pipe
        ended = asyncio.Event()
        received: list[bytes] = []
        PipeReader(asyncio.get_running_loop(), reader, received.append, ended.set)
        payload = os.urandom(3 * READ_SIZE)
        await asyncio.to_thread(_write_and_close, writer, payload)
        await ended.wait()
        assert max(map(len, received)) <= READ_SIZE
        assert not is_open(reader)
        assert b"".join(received) == payload
        return payload

    assert asyncio.run(main())


def _write_and_close(fd: int, payload: bytes) -> None:
    with open(fd, "wb") as file:
        file.write(payload)


def test_drain_reads_what_is_there_at_once(pipe: tuple[int, int]) -> None:
    async def main() -> None:
        reader, writer = pipe
        received: list[bytes] = []
        ends: list[str] = []
        source = PipeReader(
            asyncio.get_running_loop(), reader, received.append, lambda: ends.append("eof")
        )
        os.write(writer, b"last words")
        source.drain()
        assert received == [b"last words"]
        assert ends == []
        os.close(writer)
        source.drain()
        assert ends == ["eof"]
        assert not is_open(reader)
        source.drain()
        source.close()
        assert ends == ["eof"]

    asyncio.run(main())


def test_drain_ends_though_the_writer_does_not(pipe: tuple[int, int]) -> None:
    """A grandchild that holds the pipe and goes on writing must not hang a stop."""

    async def main() -> int:
        reader, writer = pipe
        received = 0

        def refill(data: bytes) -> None:
            nonlocal received
            received += len(data)
            os.write(writer, b"x" * 4096)

        source = PipeReader(asyncio.get_running_loop(), reader, refill, lambda: None)
        os.write(writer, b"x" * 4096)
        source.drain()
        source.close()
        os.close(writer)
        assert not is_open(reader)
        return received

    assert DRAIN_SIZE <= asyncio.run(main()) <= DRAIN_SIZE + READ_SIZE


def test_a_closed_reader_hears_nothing(pipe: tuple[int, int]) -> None:
    async def main() -> list[bytes]:
        reader, writer = pipe
        received: list[bytes] = []
        source = PipeReader(
            asyncio.get_running_loop(), reader, received.append, lambda: received.append(b"eof")
        )
        os.write(writer, b"unread")
        source.close()
        source.close()
        os.close(writer)
        await asyncio.sleep(0)
        return received

    assert asyncio.run(main()) == []


@pytest.fixture
def root_logger() -> Iterator[None]:
    """Put the root logger back as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("root_logger")
def test_text_lines_carry_the_extras(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    logger = logging.getLogger("modelsup.test")
    logger.debug("not shown")
    logger.info("worker is %s", "ready", extra={"model": "resnet50", "pid": 7, "why": "as asked"})
    captured = capsys.readouterr()
    assert captured.out == ""
    line = captured.err.rstrip("\n")
    assert line.endswith(" INFO modelsup.test: worker is ready model=resnet50 pid=7 why='as asked'")


@pytest.mark.usefixtures("root_logger")
def test_an_extra_cannot_forge_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "text")
    logging.getLogger("modelsup.test").info("said", extra={"text": "a\nINFO forged", "none": ""})
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.endswith("said text='a\\nINFO forged' none=''\n")


@pytest.mark.usefixtures("root_logger")
def test_json_lines_carry_the_extras_and_tracebacks(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug", "json")
    try:
        {}["absent"]
    except KeyError:
        logging.getLogger("modelsup.test").exception("failed", extra={"model": "resnet50"})
    record = json.loads(capsys.readouterr().err)
    assert record["level"] == "ERROR"
    assert record["logger"] == "modelsup.test"
    assert record["message"] == "failed"
    assert record["model"] == "resnet50"
    assert record["time"]
    assert "KeyError: 'absent'" in record["exc_info"]


@pytest.mark.usefixtures("root_logger")
def test_configuring_twice_does_not_double_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    configure_logging("warning", "text")
    logging.getLogger("modelsup.test").info("not shown")
    logging.getLogger("modelsup.test").warning("shown")
    assert capsys.readouterr().err.count("\n") == 1
