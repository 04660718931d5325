"""Bodies of 10 MB and of 1 GB pass through a supervisor that holds little of them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MB = 10**6
CHUNK = bytes(MB)
PER_REQUEST = 2 * MB  # what a request may take of the supervisor's memory, in each direction
SOCKETS = 12 * MB  # of allocator and socket buffers, however many requests there are
BYTES = {"inputs": {"x": {"dtype": "uint8", "shape": [None]}}}


def peak(pid: int) -> int:
    """Return the most memory that a process has had at one time, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def head(size: int) -> bytes:
    """Return the JSON before so many bytes of a tensor; the answer is to be in binary too."""
    parameters = {"binary_data_size": size}
    tensor = {"name": "x", "datatype": "UINT8", "shape": [size], "parameters": parameters}
    return json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()


def body(size: int) -> Iterator[bytes]:
    yield head(size)
    for _ in range(size // len(CHUNK)):
        yield CHUNK


def send(url: str, size: int, *, chunked: bool) -> int:
    """Send so many bytes to the model and read as many back; return how many came."""
    headers = {"Inference-Header-Content-Length": str(len(head(size)))}
    data: Any = body(size)
    if not chunked:
        headers["Content-Length"] = str(len(head(size)) + size)
        data = Sized(body(size), len(head(size)) + size)
    address = f"{url}/v2/models/m/infer"
    with requests.post(address, data, headers=headers, stream=True, timeout=100) as answer:
        assert answer.status_code == 200, answer.text
        skipped = int(answer.headers["Inference-Header-Content-Length"])
        return sum(len(part) for part in answer.iter_content(MB)) - skipped


class Sized:
    """An iterator whose length is known, so that it is sent without chunks."""

    def __init__(self, parts: Iterator[bytes], size: int) -> None:
        self._parts = parts
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        return self._parts

    def __len__(self) -> int:
        return self._size


@pytest.fixture
def supervisor(start_supervisor: Callable[..., Any], echo_model: Callable[..., str]) -> Any:
    started = start_supervisor("--max-body-size", "1100MB")
    started.client.load("m", echo_model(**BYTES))
    assert send(started.url, MB, chunked=True) == MB  # imports and first buffers
    return started


@pytest.mark.parametrize("chunked", [True, False])
def test_a_gigabyte_there_and_back(supervisor: Any, chunked: bool) -> None:
    forget_peak(supervisor.pid)
    before = peak(supervisor.pid)
    assert send(supervisor.url, 1000 * MB, chunked=chunked) == 1000 * MB
    assert peak(supervisor.pid) - before < PER_REQUEST + SOCKETS


def test_ten_times_ten_megabytes_at_once(supervisor: Any) -> None:
    forget_peak(supervisor.pid)
    before = peak(supervisor.pid)
    with ThreadPoolExecutor(10) as pool:
        sent = list(
            pool.map(lambda n: send(supervisor.url, 10 * MB, chunked=n % 2 == 0), range(40))
        )
    assert sent == [10 * MB] * 40
    assert peak(supervisor.pid) - before < 10 * PER_REQUEST + SOCKETS
