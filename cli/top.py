"""One look at the supervisor as lines of text: memory, workers, leases and queue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .output import listed, seconds, size, table
from .workers import charged

if TYPE_CHECKING:
    from collections.abc import Iterator

    from modelsup.client import Client, ClientInfo, Memory, Status, WorkerInfo

_BAR_WIDTH: Final = 12  # characters; the table fits into 80


@dataclass(frozen=True, slots=True)
class Look:
    """What `top` shows, all of about the same moment."""

    status: Status
    memory: Memory
    workers: list[WorkerInfo]
    clients: list[ClientInfo]


def look(client: Client) -> Look:
    """Ask the supervisor. Raises ModelsupError."""
    return Look(client.status(), client.memory(), client.workers(), client.clients())


def lines(found: Look) -> Iterator[str]:
    """Yield the lines of a look."""
    status = found.status
    yield f"modelsup at {status.url}: {status.state}, up {seconds(status.uptime_seconds)}"
    yield ""
    yield from _memory(found.memory)
    yield ""
    yield from _workers(found)
    if found.clients:
        yield ""
        yield from _leases(found.clients)
    if found.memory.queue:
        yield ""
        yield f"waiting for room: {listed(found.memory.queue)}"


def bar(ours: int | None, others: int | None, total: int) -> str:
    """Return a bar: # ours, + others', . free; question marks where the shares are not known."""
    if ours is None or others is None or total <= 0:
        return "?" * _BAR_WIDTH
    mine = min(_BAR_WIDTH, round(ours / total * _BAR_WIDTH))
    used = max(mine, min(_BAR_WIDTH, round((ours + others) / total * _BAR_WIDTH)))
    return "#" * mine + "+" * (used - mine) + "." * (_BAR_WIDTH - used)


def _memory(memory: Memory) -> Iterator[str]:
    host = memory.host
    ours = host.tree_bytes or 0
    others = max(0, host.total_bytes - host.available_bytes - ours)
    rows = [
        (
            "host",
            bar(ours, others, host.total_bytes),
            size(ours),
            size(others),
            size(host.available_bytes),
            size(host.total_bytes),
            size(host.charged_bytes),
            size(host.budget_bytes),
        )
    ]
    rows += [
        (
            f"gpu:{gpu.index}",
            bar(gpu.workers_bytes, gpu.others_bytes, gpu.total_bytes),
            size(gpu.workers_bytes),
            size(gpu.others_bytes),
            size(gpu.free_bytes),
            size(gpu.total_bytes),
            size(gpu.charged_bytes),
            size(gpu.budget_bytes),
        )
        for gpu in memory.gpus
    ]
    headers = ("MEMORY", "", "OURS #", "OTHERS +", "FREE .", "TOTAL", "CHARGED", "BUDGET")
    yield from table(headers, rows)
    if host.kept_bytes:
        yield f"weights kept in RAM: {size(host.kept_bytes)}"
    for gpu in memory.gpus:
        if gpu.reason is not None:
            yield f"gpu:{gpu.index}: {gpu.reason}"


def _workers(found: Look) -> Iterator[str]:
    names = {gpu.uuid: f"gpu:{gpu.index}" for gpu in found.memory.gpus}
    yield from table(
        ("MODEL", "WORKER", "STATE", "DEVICE", "MEMORY", "CHARGED", "IN FLIGHT", "REQUESTS"),
        [
            (
                worker.model,
                worker.id,
                worker.state,
                names.get(worker.device, worker.device) if worker.device else "cpu",
                size(worker.memory.pss_bytes if worker.memory else None),
                charged(worker),
                str(worker.in_flight),
                str(worker.requests),
            )
            for worker in found.workers
        ],
    )


def _leases(clients: list[ClientInfo]) -> Iterator[str]:
    yield from table(
        ("CLIENT", "HOLDS", "EXPIRES IN"),
        [(lease.id, lease.model, seconds(lease.expires_in_seconds)) for lease in clients],
    )
