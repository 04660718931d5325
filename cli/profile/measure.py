"""Load a model several times through the supervisor, read what it takes, and release it all.

The model is loaded under a temporary name of its own, so that nobody else's worker is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..subjects import released, unload
from .recommend import peak_of_all
from .results import Gpu, Measured, ProfileFailed, Row, SharedRow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelsup.client import Client, Memory, WorkerInfo

    from ..subjects import Say, Subject

STAGES: Final = ("fork", "load", "first_call", "steady", "peak")
LEASE: Final = 3600.0  # seconds; ends the leases where this process is killed before it can


def measure(client: Client, subject: Subject, counts: Sequence[int], say: Say) -> Measured:
    """Measure so many private instances, then as many clients on one shared worker.

    Stops at the count that does not fit beside what is loaded, and says so in the notes. Raises
    ModelsupError, ProfileFailed. Nothing of it stays loaded, whatever happens.
    """
    with released(client, subject, say):
        rows, workers, notes = _private(client, subject, counts, say)
        memory = client.memory()
        unload(client, subject.name)
        say(f"loading one worker for {max(counts)} clients")
        shared = _shared(client, subject, max(counts))
    first = workers[0]
    budget = memory.host.budget_bytes or memory.host.limit_bytes or memory.host.total_bytes
    return Measured(
        source=source_of(subject.source, first.version),
        version=first.version,
        runtime=first.runtime or subject.runtime or "",
        framework=first.framework,
        stages={name: first.memory_stages[name] for name in STAGES},
        most_bytes=max(shared.private_bytes, *map(most_of, workers)),
        rows=tuple(rows),
        shared=shared,
        gpu=gpu_of(first, memory),
        budget_bytes=budget,
        forkservers_bytes=memory.host.forkservers_bytes or 0,
        batch=subject.options.get("warm_up_batch", 1),
        notes=tuple(notes),
    )


def _private(
    client: Client, subject: Subject, counts: Sequence[int], say: Say
) -> tuple[list[Row], list[WorkerInfo], list[str]]:
    """Load one after the other; return a row for each count, the workers, and the notes."""
    rows: list[Row] = []
    ids: list[str] = []
    workers: list[WorkerInfo] = []
    for number in range(1, max(counts) + 1):
        if number > 1 and (reason := _no_room(client, subject.name)):
            return rows, workers, [f"stopped at {number - 1} instances: {reason}"]
        say(f"loading instance {number} of {max(counts)}")
        ids.append(_swap(client, subject, number, private=True))
        if number in counts or number == 1:
            workers = _workers(client, ids)
        if number in counts:
            rows.append(row_of(workers))
    return rows, workers, []


def _no_room(client: Client, name: str) -> str:
    """Return why one more instance would disturb others; nothing where it would not."""
    plan = client.plan(name)
    if plan.fits == "now":
        return ""
    others = {victim.model for victim in plan.victims} | {b.model for b in plan.blockers}
    beside = f" beside {', '.join(sorted(others))}" if others - {name} else ""
    return f"one more does not fit{beside}"


def _swap(client: Client, subject: Subject, number: int, *, private: bool) -> str:
    """Give a client the model; return its worker."""
    swap = client.swap(
        subject.client_id(number),
        subject.name,
        subject.source,
        runtime=subject.runtime,
        private=private,
        lease_ttl=LEASE,
        wait=subject.wait,
        **subject.options,
    )
    return swap.worker


def _workers(client: Client, ids: Sequence[str]) -> list[WorkerInfo]:
    """Return these workers, in this order. Raises ProfileFailed if one is gone or unmeasured."""
    found = {worker.id: worker for worker in client.workers()}
    workers = [found[uid] for uid in ids if uid in found]
    if len(workers) < len(ids):
        raise ProfileFailed("a worker ended while it was measured; `modelsup logs` may say why")
    if any(worker.memory is None or not worker.memory_stages for worker in workers):
        raise ProfileFailed(
            "the supervisor's machine does not tell private memory: its kernel has no "
            "/proc/PID/smaps_rollup, or the supervisor may not read it"
        )
    return workers


def row_of(workers: Sequence[WorkerInfo]) -> Row:
    """Add up workers that were loaded in this order."""
    stages = [worker.memory_stages for worker in workers]
    sizes = [worker.memory for worker in workers if worker.memory is not None]
    return Row(
        instances=len(workers),
        before_bytes=sum(stage["load"] for stage in stages),
        after_bytes=sum(stage["steady"] for stage in stages),
        peak_bytes=peak_of_all([s["steady"] for s in stages], [s["peak"] for s in stages]),
        private_bytes=sum(size.uss_bytes for size in sizes),
        proportional_bytes=sum(size.pss_bytes for size in sizes),
    )


def most_of(worker: WorkerInfo) -> int:
    """Return the most private bytes that a worker was seen with; serving, it has some more."""
    now = 0 if worker.memory is None else worker.memory.uss_bytes
    return max(worker.memory_stages["peak"], now)


def _shared(client: Client, subject: Subject, clients: int) -> SharedRow:
    ids = {_swap(client, subject, number, private=False) for number in range(1, clients + 1)}
    sizes: list[Any] = [worker.memory for worker in _workers(client, sorted(ids))]
    return SharedRow(
        clients=clients,
        private_bytes=sum(size.uss_bytes for size in sizes),
        proportional_bytes=sum(size.pss_bytes for size in sizes),
    )


def gpu_of(worker: WorkerInfo, memory: Memory) -> Gpu | None:
    """Return the GPU of a worker with what the worker takes of it; None on the CPU."""
    gpu = next((gpu for gpu in memory.gpus if gpu.uuid == worker.device), None)
    if gpu is None:
        return None
    used = [p.memory_bytes for p in gpu.processes or () if p.worker == worker.id]
    return Gpu(gpu.uuid, gpu.total_bytes, gpu.budget_bytes, used[0] if used else None)


def source_of(source: str | None, version: str | None) -> str | None:
    """Return the path that was loaded: the folder of the version where the source has such."""
    if source is None or version is None:
        return source
    folder = Path(source) / version
    return str(folder) if folder.is_dir() else source
