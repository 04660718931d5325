"""The call that shows where the memory is: measured, budgeted and charged, host and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..domain import GPU_NOISE
from ..policy.admission import HOST
from ..states import ENDED
from .control_answers import memory_json, memory_of, worker_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Memory
    from ..fleet.views import Books, WorkerView
    from .control_ports import ControlledFleet, Facts, Forkserver, Gpu
    from .control_routes import Routes
    from .control_shapes import GpuLedger, HostLedger, MemoryAnswer
    from .on_loop import OnLoop


@dataclass(frozen=True, slots=True)
class _Moment:
    """What the event loop knows, all of one moment."""

    workers: Sequence[WorkerView]
    forkservers: Sequence[Forkserver]
    books: Books
    gpus: Sequence[Gpu]


def add_memory_routes(
    routes: Routes, fleet: ControlledFleet, on_loop: OnLoop, facts: Facts
) -> None:
    """Add /api/memory."""

    async def look() -> _Moment:
        gpus = await facts.gpus()
        return _Moment(fleet.workers(), list(facts.forkservers()), fleet.books(), gpus)

    @routes.add("GET", "/api/memory")
    def memory() -> MemoryAnswer:
        """Where the memory is: measured, budgeted and charged, of the host and of GPUs."""
        moment = on_loop.wait(look)
        measured = [(worker, worker_memory(facts, worker)) for worker in moment.workers]
        return {
            "host": _host(facts, moment, _pss([memory for _, memory in measured])),
            "gpus": [_gpu(gpu, moment) for gpu in moment.gpus],
            "workers": [
                {"id": worker.id, "model": worker.model, **memory_json(memory)}
                for worker, memory in measured
                if memory is not None
            ],
            "queue": moment.books.queue,
        }


def _host(facts: Facts, moment: _Moment, models: int) -> HostLedger:
    own = _pss([memory_of(facts, facts.pid)])
    theirs = _pss([memory_of(facts, forkserver.pid) for forkserver in moment.forkservers])
    host, books = facts.host_memory(), moment.books
    return {
        "total_bytes": host.total,
        "available_bytes": host.available,
        "limit_bytes": host.limit,
        "budget_bytes": books.budgets[HOST],
        "charged_bytes": books.charged.get(HOST, 0),
        "own_bytes": books.own,
        "kept_bytes": books.kept,
        "supervisor_bytes": own,
        "forkservers_bytes": theirs,
        "workers_bytes": models,
        "tree_bytes": own + theirs + models,
    }


def _gpu(gpu: Gpu, moment: _Moment) -> GpuLedger:
    there = [w for w in moment.workers if w.device == gpu.uuid and w.state not in ENDED]
    ours = {worker.pid: worker for worker in there if worker.pid is not None}
    held, reason = _held(gpu, set(ours))
    return {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "index": gpu.index,
        "total_bytes": gpu.total,
        "budget_bytes": moment.books.budgets.get(gpu.uuid),  # None: it may not be used any more
        "charged_bytes": moment.books.charged.get(gpu.uuid, 0),
        "used_bytes": gpu.used,
        "free_bytes": gpu.free,
        "workers_bytes": held,
        "others_bytes": None if held is None or gpu.used is None else max(0, gpu.used - held),
        "processes": None
        if gpu.processes is None
        else [
            {
                "pid": process.pid,
                "memory_bytes": process.memory,
                "worker": ours[process.pid].id if process.pid in ours else None,
            }
            for process in gpu.processes
        ],
        "reason": gpu.reason or reason,
    }


def _held(gpu: Gpu, pids: set[int]) -> tuple[int | None, str | None]:
    """Return the bytes that workers hold of a GPU, or why nobody knows."""
    if gpu.processes is None:
        return None, None  # the GPU has its own reason
    found = [process.memory for process in gpu.processes if process.pid in pids]
    if pids and not found and (gpu.processes or (gpu.used or 0) > GPU_NOISE):
        # In a container the driver may list nobody, or pids as the host counts them.
        return None, "none of its processes has the pid of a worker"
    known = [memory for memory in found if memory is not None]
    return (sum(known), None) if len(known) == len(found) else (None, None)


def _pss(measured: Sequence[Memory | None]) -> int:
    return sum(memory.pss for memory in measured if memory is not None)
