"""From the fleet's own objects to the views that it shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .views import ClientView, ModelView, WorkerView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import CatalogueEntry, Place
    from .clients import Hold
    from .slot import Slot
    from .views import PreparedView
    from .worker import Worker


def worker_view(
    worker: Worker, clients: tuple[str, ...], *, pinned: bool, wall_minus_monotonic: float
) -> WorkerView:
    """Show one worker."""
    used = worker.traffic.last_end + wall_minus_monotonic if worker.traffic.total else None
    return WorkerView(
        id=worker.uid,
        model=worker.key.model,
        version=worker.key.version,
        runtime=worker.spec.runtime,
        pid=worker.handle.pid if worker.handle else None,
        state=worker.state,
        since=worker.since,
        device=worker.spec.device,
        private_to=worker.key.client or None,
        clients=clients,
        pinned=pinned,
        in_flight=worker.traffic.in_flight,
        requests=worker.traffic.total,
        last_used_at=used,
        restarts=worker.restarts,
        gpu_memory_limit_bytes=worker.spec.gpu_memory_limit,
        charges=worker.charges,
        estimated=worker.estimated,
        memory_stages=worker.memory,
        framework=worker.framework or None,
        seconds=dict(worker.seconds),
        failure=worker.failure,
        guard=worker.handle.guard if worker.handle else None,
        from_prepared=worker.from_prepared,
        replica=worker.key.replica + 1,
    )


def model_view(
    entry: CatalogueEntry,
    slots: Sequence[Slot],
    clients: tuple[str, ...],
    versions: tuple[str, ...],
    prepared: PreparedView,
    residency: Place,
    waiting: int,
) -> ModelView:
    """Show one model. Its state is that of its first shared worker, else of a private one."""
    shared = [slot for slot in slots if not slot.key.client]
    main = next((slot for slot in shared if slot.current), None)
    main = main or next(iter(slots), None)
    fellows = [slot for slot in slots if main and slot.key.crew == main.key.crew]
    worker = main.current if main else None
    return ModelView(
        name=entry.name,
        source=entry.source,
        runtime=entry.runtime,
        version=main.key.version if main else None,
        versions=versions,
        state=main.state if main else "unloaded",
        workers=tuple(s.current.uid for s in slots if s.current),
        clients=clients,
        pinned=bool(entry.options.pin),
        options=entry.options,
        failure=next((slot.failure for slot in fellows if slot.failure), None),
        signatures=(worker.signatures or None) if worker else None,
        prepared=prepared,
        residency=residency,
        waiting=waiting,
        replicas=entry.options.replicas or 1,
        ready=sum(slot.standing == 0 for slot in fellows if slot in shared),
    )


def client_view(hold: Hold, slot: Slot | None, expires_in: float) -> ClientView:
    """Show one client."""
    lease = hold.lease
    return ClientView(
        id=lease.client,
        model=lease.key.model,
        version=lease.key.version,
        worker=slot.current.uid if slot and slot.current else None,
        private=bool(lease.key.client),
        since=lease.since,
        expires_in_seconds=expires_in,
        requests=hold.requests,
    )
