"""A load generator with little overhead of its own, run in its own process.

Each connection sends the same bytes, waits for the whole answer and sends again. One event loop
serves all connections; the answers are parsed in C, so that the generator takes as little of
the machine as it can from the server under test.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import click
import httptools
import uvloop

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parent.parent
SLACK_SECONDS = 30  # what the generator may take beside the measured time


@dataclass(frozen=True, slots=True)
class Load:
    """What one run saw. `errors` are answers other than 200 and connections that broke."""

    connections: int
    seconds: float
    requests: int
    errors: int
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(slots=True)
class _Tally:
    """What the connections of a run share."""

    request: bytes
    latencies: list[float]  # seconds
    errors: int = 0
    stopped: bool = False


class _Connection(asyncio.Protocol):
    """One keep-alive connection with at most one request under way."""

    def __init__(self, tally: _Tally) -> None:
        self.closed = asyncio.Event()
        self._tally = tally
        self._parser: Any = None
        self._transport: asyncio.Transport | None = None
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass of it
        self._send()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._sent_at and not self._tally.stopped:
            self._tally.errors += 1
        self.closed.set()

    def on_message_complete(self) -> None:
        """Count the answer; httptools calls this by name."""
        assert self._transport is not None
        if self._tally.stopped:
            return
        elapsed = time.perf_counter() - self._sent_at
        self._sent_at = 0.0
        if self._parser.get_status_code() == 200:
            self._tally.latencies.append(elapsed)
        else:
            self._tally.errors += 1
        if self._parser.should_keep_alive():
            self._send()
        else:
            self._transport.close()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _send(self) -> None:
        assert self._transport is not None
        self._parser = httptools.HttpResponseParser(self)
        self._sent_at = time.perf_counter()
        self._transport.write(self._tally.request)


async def _keep_connected(host: str, port: int, tally: _Tally) -> None:
    """Hold one connection; a server that closes it gets a new one."""
    loop = asyncio.get_running_loop()
    while not tally.stopped:
        try:
            _, connection = await loop.create_connection(lambda: _Connection(tally), host, port)
        except OSError:
            tally.errors += 1
            await asyncio.sleep(0.01)
            continue
        try:
            await connection.closed.wait()
        finally:
            connection.close()


async def _run(url: str, request: bytes, connections: int, seconds: float) -> Load:
    parts = urlsplit(url)
    assert parts.hostname is not None
    tally = _Tally(request, [])
    started = time.perf_counter()
    tasks = [
        asyncio.create_task(_keep_connected(parts.hostname, parts.port or 80, tally))
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    tally.stopped = True
    elapsed = time.perf_counter() - started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    ordered = sorted(tally.latencies)
    return Load(
        connections=connections,
        seconds=elapsed,
        requests=len(ordered),
        errors=tally.errors,
        per_second=len(ordered) / elapsed,
        p50_ms=_percentile(ordered, 0.50) * 1000,
        p99_ms=_percentile(ordered, 0.99) * 1000,
    )


def _percentile(ordered: list[float], share: float) -> float:
    """Return the nearest-rank percentile, NaN where nothing was measured."""
    if not ordered:
        return float("nan")
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def request_bytes(url: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """Return a POST as it goes over the wire."""
    parts = urlsplit(url)
    fields = {"Host": parts.netloc, "Content-Length": str(len(body)), **headers}
    lines = [f"POST {parts.path} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def measure(
    url: str, headers: Mapping[str, str], body: bytes, connections: int, seconds: float
) -> Load:
    """Run the generator in a process of its own and return what it saw.

    Raises CalledProcessError where the generator failed, TimeoutExpired where it hung.
    """
    command = [sys.executable, "-m", "benchmarks.loadgen", url]
    command += ["--connections", str(connections), "--seconds", str(seconds)]
    done = subprocess.run(
        command,
        input=request_bytes(url, headers, body),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=True,
        timeout=seconds + SLACK_SECONDS,
    )
    return Load(**json.loads(done.stdout))


@click.command()
@click.argument("url")
@click.option("--connections", type=click.IntRange(1), default=1, show_default=True)
@click.option("--seconds", type=float, default=2.0, show_default=True)
def main(url: str, connections: int, seconds: float) -> None:
    """Send the request given on standard input to the server of URL; print JSON."""
    request = sys.stdin.buffer.read()
    load = uvloop.run(_run(url, request, connections, seconds))
    print(json.dumps(asdict(load)))


if __name__ == "__main__":
    main()
