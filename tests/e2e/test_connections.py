"""HTTP as sockets see it: slow clients, large bodies, kept connections, pipelined requests."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Supervisor

PROMPT = 5.0  # seconds in which others must be answered, on a busy machine
MEGABYTE = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def _models(module_supervisor: Supervisor) -> Iterator[None]:
    for name in ("m", "other"):
        module_supervisor.client.load(name, runtime="echo")
    yield
    for name in ("m", "other"):
        assert module_supervisor.client.unload(name).in_flight_aborted == 0


class Connection:
    """A connection with nothing between it and the test."""

    def __init__(self, raw: socket.socket) -> None:
        self.raw = raw
        self._reader = raw.makefile("rb")

    def answer(self) -> tuple[int, bytes]:
        """Return status and body of the next answer."""
        status = int(self._reader.readline().split()[1])
        length = 0
        for line in iter(self._reader.readline, b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, self._reader.read(length)

    def predictions(self) -> list[Any]:
        """Return the predictions in the next answer."""
        status, body = self.answer()
        assert status == 200, body
        found: list[Any] = json.loads(body)["predictions"]
        return found

    def close(self) -> None:
        """Close what reads."""
        self._reader.close()


@contextlib.contextmanager
def connected(supervisor: Supervisor, buffer: int | None = None) -> Iterator[Connection]:
    """A connection; `buffer` is how much the kernel may take in for it, in bytes."""
    with socket.socket() as raw:
        if buffer is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        raw.settimeout(30)
        raw.connect(("127.0.0.1", supervisor.port))
        with contextlib.closing(Connection(raw)) as connection:
            yield connection


def closing_connection(
    supervisor: Supervisor,
) -> contextlib.closing[http.client.HTTPConnection]:
    """Return a connection of Python's own HTTP client."""
    return contextlib.closing(http.client.HTTPConnection("127.0.0.1", supervisor.port, timeout=30))


def request(value: float, model: str = "m", rows: int = 1, head: str = "") -> bytes:
    """Return the bytes of a prediction."""
    body = json.dumps({"instances": [[value]] * rows})
    return (
        f"POST /v1/models/{model}:predict HTTP/1.1\r\nHost: h\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{head}\r\n{body}"
    ).encode()


def others_are_answered(supervisor: Supervisor) -> None:
    """Ask both models, the control API and a probe; each must answer promptly."""
    client = supervisor.client
    for model in ("m", "other"):
        y = client.predict(model, [[5.0]], timeout=PROMPT)
        assert np.asarray(y).tolist() == [[5.0]]
    assert client.status().state == "running"


def test_who_sends_a_byte_at_a_time_holds_up_nobody(module_supervisor: Supervisor) -> None:
    with connected(module_supervisor) as slow:
        slow.raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        whole = request(1.0)
        for number, byte in enumerate(whole):
            slow.raw.sendall(bytes([byte]))
            if number % 20 == 0:
                others_are_answered(module_supervisor)
        assert slow.predictions() == [[1.0]]


def test_many_halves_of_requests_hold_up_nobody(module_supervisor: Supervisor) -> None:
    whole = request(2.0)
    head, body = len(whole) // 2, len(whole) - 5
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(connected(module_supervisor)) for _ in range(200)]
        for number, connection in enumerate(slow):
            connection.raw.sendall(whole[: body if number % 2 else head])
        others_are_answered(module_supervisor)
        (worker,) = (w for w in module_supervisor.client.workers() if w.model == "m")
        assert worker.in_flight == 0  # a worker is not taken before the body is there
        for number, connection in enumerate(slow):
            connection.raw.sendall(whole[body if number % 2 else head :])
        assert [connection.predictions() for connection in slow] == [[[2.0]]] * 200


def test_who_reads_slowly_holds_up_nobody(module_supervisor: Supervisor) -> None:
    with connected(module_supervisor, buffer=4096) as slow:
        slow.raw.sendall(request(3.5, rows=400_000))  # an answer of 2.4 MB
        assert slow.raw.recv(1)[:1] == b"H"  # it has begun, and cannot end before it is read
        others_are_answered(module_supervisor)
        assert module_supervisor.client.load("m").already_loaded
        data = b"H"
        for _ in range(1000):
            data += slow.raw.recv(1)
        others_are_answered(module_supervisor)
        while not data.endswith(b"]}"):
            data += slow.raw.recv(MEGABYTE)
    assert json.loads(data.partition(b"\r\n\r\n")[2]) == {"predictions": [[3.5]] * 400_000}


def peak(pid: int) -> int:
    """Return the most memory, in bytes, that a process has had since `forget_peak`."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def test_large_bodies_stream_through(module_supervisor: Supervisor) -> None:
    """40 MB there and back; the supervisor must not hold them."""
    x = np.arange(10 * MEGABYTE, dtype=np.float32).reshape(-1, 1000)
    module_supervisor.client.predict("m", x[:1000])  # what one large request makes it keep
    forget_peak(module_supervisor.pid)
    before = psutil.Process(module_supervisor.pid).memory_info().rss

    y = module_supervisor.client.predict("m", x)

    assert np.array_equal(np.asarray(y), x)
    assert peak(module_supervisor.pid) - before < 8 * MEGABYTE


def test_an_answer_that_nobody_reads_is_not_kept_in_the_supervisor(
    module_supervisor: Supervisor,
) -> None:
    """40 MB wait in the worker until the client takes them; others are answered meanwhile."""
    file = io.BytesIO()
    np.save(file, np.arange(10 * MEGABYTE, dtype=np.float32).reshape(-1, 1000))
    head = (
        "POST /v1/models/m:predict HTTP/1.1\r\nHost: h\r\nContent-Type: application/x-npy\r\n"
        f"Accept: application/x-npy\r\nContent-Length: {len(file.getvalue())}\r\n\r\n"
    )
    with connected(module_supervisor, buffer=4096) as slow:
        others_are_answered(module_supervisor)
        forget_peak(module_supervisor.pid)
        before = psutil.Process(module_supervisor.pid).memory_info().rss
        slow.raw.sendall(head.encode() + file.getvalue())
        assert slow.raw.recv(12) == b"HTTP/1.1 200"
        others_are_answered(module_supervisor)
        assert peak(module_supervisor.pid) - before < 8 * MEGABYTE


def test_half_of_a_large_body_holds_up_nobody(module_supervisor: Supervisor) -> None:
    """Its worker has taken it already, and waits for the rest beside its other requests."""
    whole = request(2.0, rows=200_000)
    with connected(module_supervisor) as slow:
        slow.raw.sendall(whole[:-10])
        for _ in range(3):
            others_are_answered(module_supervisor)
        slow.raw.sendall(whole[-10:])
        assert slow.predictions() == [[2.0]] * 200_000


def test_a_connection_serves_many_requests(module_supervisor: Supervisor) -> None:
    with closing_connection(module_supervisor) as connection:
        connection.connect()
        kept = connection.sock
        for number in range(50):
            model = ("m", "nope")[number % 2]
            body = json.dumps({"instances": [[number]]})
            connection.request("POST", f"/v1/models/{model}:predict", body)
            answer = connection.getresponse()
            assert answer.status == (200, 404)[number % 2]
            answer.read()
        for path in ("/api/status", "/healthz", "/api/nothing", "/v1/nothing", "/v2/models/m"):
            connection.request("GET", path)
            connection.getresponse().read()
        assert connection.sock is kept


def test_a_body_that_nobody_read_ends_its_connection(module_supervisor: Supervisor) -> None:
    """Else its bytes would be taken for the next request."""
    with closing_connection(module_supervisor) as connection:
        connection.request("POST", "/v1/nothing", b"GET /healthz HTTP/1.1\r\n\r\n")
        answer = connection.getresponse()
        assert answer.status == 404
        assert answer.headers["Connection"] == "close"
        answer.read()
        assert connection.sock is None


def test_pipelined_requests_are_answered_in_order(module_supervisor: Supervisor) -> None:
    with connected(module_supervisor) as connection:
        models = ("m", "other", "nope") * 10
        requests = [request(float(number), model) for number, model in enumerate(models)]
        connection.raw.sendall(b"".join(requests))
        for number, model in enumerate(models):
            status, body = connection.answer()
            if model == "nope":
                assert status == 404
                assert b"nope" in body
            else:
                assert json.loads(body) == {"predictions": [[float(number)]]}


def test_expect_100_continue(module_supervisor: Supervisor) -> None:
    whole = request(4.0, head="Expect: 100-continue\r\n")
    head, _, body = whole.partition(b"\r\n\r\n")
    with connected(module_supervisor) as connection:
        connection.raw.sendall(head + b"\r\n\r\n")
        assert connection.raw.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.raw.sendall(body)
        assert connection.predictions() == [[4.0]]


def test_a_refused_body_is_not_asked_for(module_supervisor: Supervisor) -> None:
    """An answer instead of 100 Continue spares the client the sending."""
    head = (
        "POST /v1/models/m:predict HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
        "Content-Length: 999999999999\r\n\r\n"
    )
    with connected(module_supervisor) as connection:
        connection.raw.sendall(head.encode())
        status, body = connection.answer()
        assert status == 413
        assert b"max_body_size" in body


def test_head_and_options(module_supervisor: Supervisor) -> None:
    paths = ("/healthz", "/readyz", "/api/status", "/v2/health/ready", "/v1/models/m")
    with closing_connection(module_supervisor) as connection:
        for path in paths:
            connection.request("HEAD", path)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"")
            assert int(answer.headers["Content-Length"]) > 0
        for path, allowed in (("/api/models", "GET"), ("/v1/models/m:predict", "POST")):
            connection.request("OPTIONS", path)
            answer = connection.getresponse()
            answer.read()
            assert allowed in answer.headers["Allow"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /v1/models/m:predict HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"POST /v1/models/m:predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
    ],
    ids=["tls", "no-path", "negative-length", "two-lengths", "bad-chunk", "long-header"],
)
def test_what_is_not_http_ends_its_connection_alone(
    module_supervisor: Supervisor, garbage: bytes
) -> None:
    with connected(module_supervisor) as connection, contextlib.suppress(ConnectionError):
        connection.raw.sendall(garbage)
        with contextlib.suppress(OSError):  # it may have been cut off already
            connection.raw.shutdown(socket.SHUT_WR)
        said = b""
        while piece := connection.raw.recv(4096):
            said += piece
        assert said == b"" or said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 404", b"HTTP/1.1 431"))
    others_are_answered(module_supervisor)


def test_a_client_that_goes_in_the_middle_leaves_nothing(module_supervisor: Supervisor) -> None:
    whole = request(1.0, rows=1000)
    for end in (10, len(whole) // 2, len(whole)):
        with connected(module_supervisor) as connection:
            connection.raw.sendall(whole[:end])
    others_are_answered(module_supervisor)
    assert {worker.restarts for worker in module_supervisor.client.workers()} == {0}
