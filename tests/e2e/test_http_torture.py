"""HTTP that is made to be misread: never a wrong answer, never another request, never a hang.

Each worker prints a line for each call, so what reached it can be compared with what was answered.
"""

from __future__ import annotations

import json
import socket
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

PATIENCE = 20.0  # seconds; who waits longer hangs
SMUGGLED = 66.0  # the value that no worker may see
TARGET = b"POST /v1/models/%s:predict HTTP/1.1\r\n"

Answer = tuple[int, bytes]


@pytest.fixture(scope="module", autouse=True)
def _models(
    module_supervisor: Supervisor, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    path: Path = tmp_path_factory.mktemp("torture") / "model.echo"
    path.write_text(json.dumps({"on_call": ["print:called"]}))
    for name in ("a", "b"):
        module_supervisor.client.load(name, str(path))
    yield
    for name in ("a", "b"):
        module_supervisor.client.unload(name, force=True)


def body(value: float) -> bytes:
    """Return the body of a prediction."""
    return json.dumps({"instances": [[value]]}).encode()


def post(model: bytes, value: float, head: bytes = b"") -> bytes:
    """Return a prediction with nothing wrong about it."""
    text = body(value)
    length = b"Content-Length: %d\r\n" % len(text)
    return TARGET % model + b"Host: h\r\n" + length + head + b"\r\n" + text


def framed(head: bytes, payload: bytes) -> bytes:
    """Return a prediction of model a whose framing is said by `head` alone."""
    return TARGET % b"a" + b"Host: h\r\n" + head + b"\r\n" + payload


def chunk(size: bytes, data: bytes, end: bytes = b"\r\n") -> bytes:
    """Return a chunk as it stands on the wire."""
    return size + b"\r\n" + data + end


FIRST = post(b"a", 1.0)
LAST = post(b"b", 3.0, b"Connection: close\r\n")
TWO = body(2.0)
LENGTH = b"%x" % len(TWO)
CHUNKED = b"Transfer-Encoding: chunked\r\n"
HIDDEN = post(b"b", SMUGGLED)
END = b"0\r\n\r\n"


def converse(supervisor: Supervisor, *pieces: bytes, half_close: bool = False) -> list[Answer]:
    """Send the pieces on one connection; return the answers that came until it was closed."""
    with socket.create_connection(("127.0.0.1", supervisor.port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            if half_close:
                connection.shutdown(socket.SHUT_WR)
            while data := connection.recv(65536):
                received += data
        except ConnectionError:
            pass  # it was cut; what came before counts
    return answers_in(received)


def answers_in(data: bytes) -> list[Answer]:
    """Split what a connection gave into answers. Fails on anything that is not one, whole."""
    found = []
    while data:
        head, separator, data = data.partition(b"\r\n\r\n")
        assert separator, head
        lines = head.split(b"\r\n")
        version, status = lines[0].split()[:2]
        assert version == b"HTTP/1.1"
        fields = dict(line.lower().split(b": ", 1) for line in lines[1:])
        size = int(fields[b"content-length"])
        assert len(data) >= size
        found.append((int(status), data[:size]))
        data = data[size:]
    return found


def values(answers: list[Answer]) -> list[float | int]:
    """Return what was predicted in each answer, or its status where it is a refusal."""
    return [json.loads(b)["predictions"][0][0] if s == 200 else s for s, b in answers]


def calls(supervisor: Supervisor, model: str) -> int:
    """Return how often a worker was called."""
    lines = supervisor.client.logs(model, tail=2000)
    return sum("called" in line for line in lines)


# What comes between the first and the last request: {its name: (bytes, value if it is taken)}.
# Whatever is not refused must be read in this one way.
ODD: dict[str, tuple[bytes, float]] = {
    "both-length-first": (
        framed(b"Content-Length: %d\r\n" % len(END + HIDDEN) + CHUNKED, END + HIDDEN),
        -1,
    ),
    "both-chunks-first": (
        framed(CHUNKED + b"Content-Length: 5\r\n", chunk(LENGTH, TWO) + END),
        2.0,
    ),
    "unknown-coding": (framed(b"Transfer-Encoding: xchunked\r\n", END + HIDDEN), -1),
    "coding-behind-chunks": (
        framed(b"Transfer-Encoding: chunked, identity\r\n", chunk(LENGTH, TWO) + END),
        -1,
    ),
    "coding-twice": (framed(CHUNKED * 2, chunk(LENGTH, TWO) + END), -1),
    "coding-with-a-tab": (
        framed(b"Transfer-Encoding:\tchunked\r\n", chunk(LENGTH, TWO) + END),
        2.0,
    ),
    "coding-with-a-vertical-tab": (
        framed(b"Transfer-Encoding: \x0bchunked\r\n", chunk(LENGTH, TWO) + END),
        -1,
    ),
    "space-before-the-colon": (
        framed(
            b"Transfer-Encoding : chunked\r\nContent-Length: %d\r\n" % len(END + HIDDEN),
            END + HIDDEN,
        ),
        -1,
    ),
    "folded-coding": (framed(b"Transfer-Encoding:\r\n chunked\r\n", chunk(LENGTH, TWO) + END), 2.0),
    "coding-in-capitals": (
        framed(b"TRANSFER-ENCODING: CHUNKED\r\n", chunk(LENGTH, TWO) + END),
        2.0,
    ),
    "equal-lengths": (framed(b"Content-Length: %d\r\n" % len(TWO) * 2, TWO), 2.0),
    "unequal-lengths": (
        framed(b"Content-Length: %d\r\nContent-Length: 0\r\n" % len(TWO), TWO),
        -1,
    ),
    "a-list-of-lengths": (framed(b"Content-Length: %d, %d\r\n" % (len(TWO), len(TWO)), TWO), 2.0),
    "length-with-a-plus": (framed(b"Content-Length: +%d\r\n" % len(TWO), TWO), -1),
    "length-in-hexadecimal": (framed(b"Content-Length: 0x%x\r\n" % len(TWO), TWO), -1),
    "length-with-an-underscore": (framed(b"Content-Length: 2_2\r\n", TWO), -1),
    "length-of-nothing": (framed(b"Content-Length: \r\n", TWO), -1),
    "length-too-large-for-64-bits": (framed(b"Content-Length: 18446744073709551637\r\n", TWO), -1),
    "length-with-leading-zeros": (framed(b"Content-Length: 000%d\r\n" % len(TWO), TWO), 2.0),
    "length-in-foreign-digits": (framed("Content-Length: ٢٢\r\n".encode(), TWO), -1),
    "chunk-size-in-words": (framed(CHUNKED, chunk(b"ZZ", TWO) + END), -1),
    "chunk-size-negative": (framed(CHUNKED, chunk(b"-1", TWO) + END), -1),
    "chunk-size-with-0x": (framed(CHUNKED, chunk(b"0x" + LENGTH, TWO) + END), -1),
    "chunk-size-with-a-plus": (framed(CHUNKED, chunk(b"+" + LENGTH, TWO) + END), -1),
    "chunk-size-with-a-space-before": (framed(CHUNKED, chunk(b" " + LENGTH, TWO) + END), 2.0),
    "chunk-size-with-a-space-behind": (framed(CHUNKED, chunk(LENGTH + b" ", TWO) + END), 2.0),
    "chunk-size-with-leading-zeros": (framed(CHUNKED, chunk(b"0" * 12 + LENGTH, TWO) + END), 2.0),
    "chunk-size-over-64-bits": (
        framed(CHUNKED, chunk(b"1" + b"0" * 15 + LENGTH, TWO) + END),
        -1,
    ),
    "chunk-with-an-extension": (framed(CHUNKED, chunk(LENGTH + b";a=b", TWO) + END), 2.0),
    "chunk-with-a-quoted-line-end": (
        framed(CHUNKED, chunk(LENGTH + b';a="\n0\r\n\r\n"', TWO) + END),
        -1,
    ),
    "chunk-size-ended-by-a-line-feed": (framed(CHUNKED, LENGTH + b"\n" + TWO + b"\r\n" + END), 2.0),
    "chunk-ended-by-a-line-feed": (framed(CHUNKED, chunk(LENGTH, TWO, b"\n") + END), 2.0),
    "chunk-without-an-end": (framed(CHUNKED, chunk(LENGTH, TWO, b"") + END), -1),
    "chunk-longer-than-it-says": (framed(CHUNKED, chunk(b"5", TWO) + END), -1),
    "trailers-that-frame": (
        framed(CHUNKED, chunk(LENGTH, TWO) + b"0\r\nContent-Length: 500\r\n\r\n"),
        2.0,
    ),
    "trailers-that-name-a-secret": (
        framed(CHUNKED, chunk(LENGTH, TWO) + b"0\r\nX-Modelsup-Secret: none\r\n\r\n"),
        2.0,
    ),
    "line-feeds-alone": (post(b"a", 2.0).replace(b"\r\n", b"\n"), 2.0),
    "carriage-returns-alone": (post(b"a", 2.0).replace(b"\r\n", b"\r"), -1),
    "a-line-feed-within-a-value": (post(b"a", 2.0, b"X: a\nX-Y: b\r\n"), 2.0),
    "a-carriage-return-within-a-value": (post(b"a", 2.0, b"X: a\rContent-Length: 0\r\n"), -1),
    "a-zero-byte-in-a-value": (post(b"a", 2.0, b"X: a\0b\r\n"), 2.0),
    "a-zero-byte-in-a-name": (post(b"a", 2.0, b"X\0: b\r\n"), -1),
    "high-bytes-in-a-value": (post(b"a", 2.0, b"X: \xff\xfe\r\n"), 2.0),
    "a-folded-value": (post(b"a", 2.0, b"X: a\r\n b\r\n"), 2.0),
    "a-line-without-a-colon": (post(b"a", 2.0, b"nothing\r\n"), -1),
    "a-name-of-nothing": (post(b"a", 2.0, b": x\r\n"), -1),
    "empty-lines-before": (b"\r\n\r\n" + post(b"a", 2.0), 2.0),
    "a-space-before-the-method": (b" " + post(b"a", 2.0), -1),
    "no-host": (post(b"a", 2.0).replace(b"Host: h\r\n", b""), 2.0),
    "two-hosts": (post(b"a", 2.0, b"Host: other\r\n"), 2.0),
    "an-absolute-target": (post(b"a", 2.0).replace(b" /v1", b" http://h/v1"), 2.0),
    "a-target-with-a-fragment": (post(b"a", 2.0).replace(b":predict", b":predict#x"), 2.0),
    "a-target-with-a-query": (post(b"a", 2.0).replace(b":predict", b":predict?x=1"), 2.0),
    "a-target-with-dots": (post(b"a", 2.0).replace(b"/a:", b"/../models/a:"), -1),
    "a-target-with-encoded-line-ends": (post(b"a", 2.0).replace(b"/a:", b"/a%0d%0aX:%20"), -1),
    "a-target-with-an-encoded-slash": (post(b"a", 2.0).replace(b"/models/a", b"/models%2fa"), -1),
    "a-target-of-64-kilobytes": (post(b"a", 2.0).replace(b"/a:", b"/" + b"a" * 65_000 + b":"), -1),
    "a-version-of-the-future": (post(b"a", 2.0).replace(b"HTTP/1.1", b"HTTP/1.9", 1), 2.0),
    "no-version": (post(b"a", 2.0).replace(b" HTTP/1.1", b"", 1), 2.0),
    "the-preface-of-http2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", -1),
    "a-hundred-large-headers": (post(b"a", 2.0, b"X: %s\r\n" % (b"y" * 590) * 100), 2.0),
    "ten-thousand-headers": (post(b"a", 2.0, b"X: y\r\n" * 10_000), 2.0),
    "a-name-of-100-kilobytes": (post(b"a", 2.0, b"X" * 100_000 + b": y\r\n"), 2.0),
    "a-value-of-a-megabyte": (post(b"a", 2.0, b"X: " + b"y" * 1_000_000 + b"\r\n"), -1),
    "connection-names-the-framing": (
        post(b"a", 2.0, b"Connection: content-length, keep-alive\r\n"),
        2.0,
    ),
    "a-secret-of-its-own": (post(b"a", 2.0, b"X-Modelsup-Secret: guess\r\n"), 2.0),
    "a-trailer-that-is-announced": (
        framed(CHUNKED + b"Trailer: X-A\r\n", chunk(LENGTH, TWO) + b"0\r\nX-A: b\r\n\r\n"),
        2.0,
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_can_be_read_in_two_ways_is_refused_or_read_in_one(
    module_supervisor: Supervisor, name: str
) -> None:
    """The first answer is right; then all are, or the connection ends with a refusal at most."""
    odd, expected = ODD[name]
    before = {model: calls(module_supervisor, model) for model in ("a", "b")}
    answers = values(converse(module_supervisor, FIRST + odd + LAST))
    assert answers[0] == 1.0
    refusals = [found for found in answers if found >= 400]
    if not refusals:
        assert answers[1:] == [expected, 3.0][: len(answers) - 1]
    elif len(answers) == 3:  # a refusal of what was framed in order, and the next one's answer
        assert answers[2] == 3.0
    else:
        assert answers[1:] == refusals
    made = {model: calls(module_supervisor, model) - before[model] for model in ("a", "b")}
    taken = [found for found in answers if found < 400]
    assert made == {"a": sum(v != 3.0 for v in taken), "b": sum(v == 3.0 for v in taken)}


@pytest.mark.parametrize("coded", [False, True], ids=["length", "chunks"])
def test_a_request_split_at_any_byte_is_read_the_same(
    module_supervisor: Supervisor, coded: bool
) -> None:
    text = framed(CHUNKED, chunk(LENGTH, TWO) + END) if coded else post(b"a", 2.0)
    whole = text + LAST
    for position in range(1, len(whole)):
        answers = converse(module_supervisor, whole[:position], whole[position:])
        assert values(answers) == [2.0, 3.0], position


@pytest.mark.parametrize("coded", [False, True], ids=["length", "chunks"])
@pytest.mark.parametrize("half_close", [False, True], ids=["close", "half-close"])
def test_a_client_that_goes_at_any_byte_leaves_nothing_behind(
    module_supervisor: Supervisor, coded: bool, half_close: bool
) -> None:
    """Half of a request is never taken for a whole one."""
    whole = framed(CHUNKED, chunk(LENGTH, TWO) + END) if coded else post(b"a", 2.0)
    converse(module_supervisor, FIRST + LAST)  # leaves a connection to each worker open
    before = calls(module_supervisor, "a")
    files = module_supervisor.open_files()
    for position in range(len(whole)):
        if half_close:
            answers = converse(module_supervisor, whole[:position], half_close=True)
            assert all(status >= 400 for status, _ in answers), position
        else:
            with socket.create_connection(("127.0.0.1", module_supervisor.port)) as connection:
                connection.sendall(whole[:position])
    assert values(converse(module_supervisor, LAST)) == [3.0]
    assert calls(module_supervisor, "a") == before
    module_supervisor.until(lambda: module_supervisor.open_files() <= files)
    assert all(w.in_flight == 0 for w in module_supervisor.client.workers())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    sent=st.lists(
        st.tuples(st.sampled_from([b"a", b"b"]), st.integers(4, 60), st.booleans()),
        min_size=1,
        max_size=30,
    ),
    cuts=st.lists(st.integers(1, 5000), max_size=20),
)
def test_pipelined_requests_to_two_models_are_answered_in_order(
    module_supervisor: Supervisor, sent: list[tuple[bytes, int, bool]], cuts: list[int]
) -> None:
    """However the stream is cut into pieces."""
    stream = b""
    for model, value, coded in sent:
        text = body(float(value))
        in_chunks = chunk(b"%x" % len(text), text) + END
        head = TARGET % model + b"Host: h\r\n"
        stream += head + CHUNKED + b"\r\n" + in_chunks if coded else post(model, float(value))
    stream += LAST
    edges = [0, *sorted({cut for cut in cuts if cut < len(stream)}), len(stream)]
    pieces = [stream[start:end] for start, end in pairwise(edges)]
    expected = [float(value) for _, value, _ in sent]
    assert values(converse(module_supervisor, *pieces)) == [*expected, 3.0]
