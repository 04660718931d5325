"""HTTP that no ordinary client sends: each answer must be that of its request, or none at all."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from modelsup.client import Client

    from tests.conftest import Supervisor

CLOSE = b"Connection: close\r\n"
BODY = b'{"instances":[[1.5]]}'
ANSWER = b'{"predictions":[[1.5]]}'
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"


@pytest.fixture
def model(shared_supervisor: Supervisor) -> Client:
    """An echo model "m"."""
    shared_supervisor.client.load("m", runtime="echo")
    return shared_supervisor.client


def request(extra: bytes = b"", body: bytes = BODY) -> bytes:
    """Return a prediction as it stands on the wire."""
    length = b"Content-Length: %d\r\n" % len(body)
    return b"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\n" + extra + length + b"\r\n" + body


def answers(supervisor: Supervisor, *pieces: bytes) -> bytes:
    """Send the pieces on one connection; return all that comes until it is closed."""
    with socket.create_connection(("127.0.0.1", supervisor.port), timeout=20) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                connection.sendall(piece)
            return b"".join(iter(lambda: connection.recv(65536), b""))
        except ConnectionError as error:
            return str(error).encode()


@pytest.mark.usefixtures("model")
def test_a_body_behind_an_offer_of_http2_is_not_lost(module_supervisor: Supervisor) -> None:
    """Clients that offer HTTP/2 in passing send their body at once, whole or split anywhere."""
    whole = request(OFFER + CLOSE)
    assert answers(module_supervisor, whole).endswith(ANSWER)
    for position in range(1, len(whole), 7):
        answer = answers(module_supervisor, whole[:position], whole[position:])
        assert answer.endswith(ANSWER), position


@pytest.mark.usefixtures("model")
def test_pipelined_offers_of_http2_are_answered_one_by_one(module_supervisor: Supervisor) -> None:
    """None is taken for the other protocol's bytes, however many there are."""
    stream = request(OFFER) * 300 + request(CLOSE)
    assert answers(module_supervisor, stream).count(ANSWER) == 301


def test_connect_is_refused(module_supervisor: Supervisor) -> None:
    """The supervisor is no proxy."""
    answer = answers(module_supervisor, b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.usefixtures("model")
def test_a_head_without_an_end_is_not_kept_in_memory(module_supervisor: Supervisor) -> None:
    """It is refused soon after the limit; a head below the limit passes."""
    assert answers(module_supervisor, request(CLOSE + b"X-A: %s\r\n" % (b"a" * 50_000))).endswith(
        ANSWER
    )
    start = b"POST /v1/models/m:predict HTTP/1.1\r\nX-A: "
    with socket.create_connection(("127.0.0.1", module_supervisor.port), timeout=20) as connection:
        connection.sendall(start + b"a" * 70_000)
        assert connection.recv(65536).startswith(b"HTTP/1.1 431 ")


@pytest.mark.usefixtures("model")
def test_garbage_behind_a_request_is_not_answered_in_its_place(
    module_supervisor: Supervisor,
) -> None:
    """The word on the second request comes behind the answer to the first."""
    first, _, second = answers(module_supervisor, request() + b"garbage\r\n\r\n").partition(ANSWER)
    assert first.startswith(b"HTTP/1.1 200 ")
    assert second.startswith(b"HTTP/1.1 400 ")


@pytest.mark.usefixtures("model")
def test_garbage_does_not_get_into_an_answer_under_way(module_supervisor: Supervisor) -> None:
    """The answer is long and read slowly; the word on the garbage comes behind all of it."""
    size = 8_000_000
    tensor = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, size // 4],
        "parameters": {"binary_data_size": size},
    }
    output = {"name": "x", "parameters": {"binary_data": True}}
    head = json.dumps({"inputs": [tensor], "outputs": [output]}).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", module_supervisor.port))
        connection.sendall(
            b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n"
            b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
            % (len(head), len(head) + size)
        )
        connection.sendall(head + b"\7" * size)
        received = connection.recv(2000)
        connection.sendall(b"garbage\r\n\r\n")
        received += b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 200 ")
    body = received.partition(b"\r\n\r\n")[2].partition(b"}]}")[2]
    assert body[:size] == b"\7" * size
    assert body[size:].startswith(b"HTTP/1.1 400 ")
