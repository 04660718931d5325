"""What process tests share beyond a supervisor: calls that go on while the test does something."""

from __future__ import annotations

import json
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def background() -> Iterator[Callable[..., Future[Any]]]:
    """Run a call in a thread; its future has the outcome."""
    with ThreadPoolExecutor(32) as pool:
        yield pool.submit


def post_and_keep(port: int, path: str, body: dict[str, Any]) -> socket.socket:
    """Send a request without waiting for its answer; closing the socket is the client's going."""
    data = json.dumps(body).encode()
    sender = socket.create_connection(("127.0.0.1", port))
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    sender.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return sender
