"""What there is to spend, and what each model and worker is charged. All sizes are in bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import BadDevice
from ..policy.admission import HOST, Candidate, Resident, Snapshot, total
from ..policy.caps import automatic_caps
from ..states import CHARGED, COMING_UP, GOING_DOWN, State

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from ..domain import Device, Footprint, Options, SlotKey
    from .clients import Clients
    from .contexts import Contexts
    from .ports import Clock, Devices, Host
    from .slot import Slot
    from .worker import Worker

ESTIMATE_FLOOR: Final = 64 * 1024**2
ESTIMATE_PER_FILE_BYTE: Final = 3  # weights, once more while they are read, and activations


@dataclass(frozen=True, slots=True)
class Reserve:
    """What stays out of the budget, and what a GPU process takes beside its cap."""

    share: float = 0.05  # of the host's memory and of each GPU's
    gpu_context: int = 450 * 1000**2  # until it was measured
    minimum_residence: float = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Charge:
    """What a worker is charged. `estimated`: nobody has measured this model yet."""

    candidate: Candidate
    device: Device | None
    gpu_memory_limit: int | None  # every worker on a GPU has one
    estimated: bool


class Ledger:
    """Turns options, learned footprints and file sizes into charges, and workers into residents."""

    def __init__(
        self,
        devices: Devices,
        host: Host,
        clients: Clients,
        clock: Clock,
        reserve: Reserve,
        contexts: Contexts,
    ) -> None:
        self._devices = devices
        self._host = host
        self._clients = clients
        self._clock = clock
        self._reserve = reserve
        self._contexts = contexts

    def budgets(self) -> dict[str, int]:
        """Return what may be charged in all, by resource."""
        keep = 1.0 - self._reserve.share
        budgets = {HOST: int(self._host.memory_limit() * keep) - self.own_memory()}
        for device in self._devices.all():
            budgets[device.uuid] = self._budget(device)
        return budgets

    def _budget(self, device: Device) -> int:
        spare = max(int(device.total_memory * self._reserve.share), device.reserved)
        return device.total_memory - spare

    def own_memory(self) -> int:
        """Return what the supervisor and its forkservers take of the host's memory."""
        return self._host.own_memory()

    def charges(self, slot: Slot, learned: Footprint | None) -> list[Charge]:
        """Return the ways to place a slot's model, with what each would cost.

        Empty when it asks for a device that is not there. A parked worker goes back to its own.
        """
        if slot.parked is not None:
            spec, back = slot.parked.spec, slot.parked.way_back
            return [Charge(Candidate(spec.device, back), None, spec.gpu_memory_limit, False)]
        return [
            charge
            for device in self._placements(slot.entry.options)
            for charge in self._ways(slot, device, learned)
        ]

    def _placements(self, options: Options) -> list[Device | None]:
        try:
            chosen = self._devices.choose(options.device)
        except BadDevice:
            return []
        if options.device is None and chosen is not None:
            return list(self._devices.all())
        return [chosen]

    def _ways(self, slot: Slot, device: Device | None, learned: Footprint | None) -> list[Charge]:
        """Return the ways to place a model on a device: one, or one for each cap it may be given.

        On a GPU each is charged at least its cap and its context, so that whatever the workers do
        they cannot take more than the budget.
        """
        options = slot.entry.options
        host = max(options.ram or 0, learned.host if learned else 0) or (
            ESTIMATE_FLOOR + ESTIMATE_PER_FILE_BYTE * slot.files.size
        )
        if device is None:
            estimated = learned is None and options.ram is None
            return [Charge(Candidate(None, {HOST: host}), None, None, estimated)]
        measured = learned.under_cap if learned else None
        context = self._contexts.of(slot.entry.runtime, device.uuid)
        asked = asked_cap(options, device)
        if asked is None:
            caps = automatic_caps(measured, slot.files.size, self._budget(device) - context)
        else:
            caps = [asked]
        estimated = measured is None and (asked is None or options.ram is None)
        sizes = [max(cap, measured or 0) + context for cap in caps]
        return [
            Charge(Candidate(device.uuid, {HOST: host, device.uuid: size}), device, cap, estimated)
            for cap, size in zip(caps, sizes, strict=True)
        ]

    def snapshot(
        self,
        slots: Iterable[Slot],
        workers: Iterable[Worker],
        clients: Collection[str],
        others: Iterable[Resident] = (),
        beside: SlotKey | None = None,
    ) -> Snapshot:
        """Return what holds memory now, as a wish of `clients`, who swap to it, finds it.

        Workers of the crew `beside` have to stay.
        """
        by_key = {slot.key: slot for slot in slots}
        residents = [
            self._resident(worker, by_key.get(worker.key), clients, beside)
            for worker in workers
            if worker.state in CHARGED
        ]
        residents.extend(others)
        return Snapshot(self.budgets(), residents, self._reserve.minimum_residence)

    def _resident(
        self, worker: Worker, slot: Slot | None, clients: Collection[str], beside: SlotKey | None
    ) -> Resident:
        now = self._clock.monotonic()
        holders = self._clients.holders([worker.key])
        leased_by = tuple(c for c in holders if c not in clients)
        ready = worker.state in {State.READY, State.PARKED}
        lost = worker.state in {State.STUCK, State.LEAKED}
        return Resident(
            worker=worker.uid,
            model=worker.key.model,
            charges=worker.charges,
            pinned=slot is not None and slot.pinned,
            fellow=worker.key.crew == beside,
            leased_by=leased_by,
            outgoing=bool(holders) and not leased_by,
            busy=worker.traffic.in_flight > 0,
            coming_up=worker.state in COMING_UP,
            going_down=not lost and (worker.state in GOING_DOWN or worker.told_to_stop),
            lost=lost,
            used=slot is None or not slot.waiting,
            ready_for=now - worker.ready_at if ready and worker.ready_at is not None else 0.0,
            idle_for=max(0.0, now - worker.traffic.last_end),
            reload_seconds=worker.seconds.get("total", 1.0),
        )


def asked_cap(options: Options, device: Device) -> int | None:
    """Return the cap in bytes that a model's options ask for; None if they leave it open."""
    if options.gpu_memory is None and options.gpu_memory_fraction is not None:
        return int(device.total_memory * options.gpu_memory_fraction)
    return options.gpu_memory


def parked(worker: Worker, snapshot: Snapshot) -> dict[str, int] | None:
    """Return a worker's charges once its GPU memory is in host memory; None where it has no room.

    None also where its own limit of host memory would not let it.
    """
    device = worker.spec.device or ""
    size = worker.gpu.bytes or worker.charges.get(device, 0)
    free = snapshot.budgets[HOST] - total(snapshot.residents).get(HOST, 0)
    limit, own = worker.spec.host_memory_limit, max(worker.memory.values(), default=0)
    if size > free or (limit is not None and own + size > limit):
        return None
    return {HOST: worker.charges.get(HOST, 0) + size}


def recharged(
    charges: Mapping[str, int],
    measured: Footprint,
    device: str | None,
    budgets: Mapping[str, int],
    residents: Sequence[Resident],
) -> dict[str, int]:
    """Return a worker's charges, raised to what it was measured to take, within what is free.

    The sum of all charges stays within the budget even when a model was underestimated.
    """
    taken = total(residents)
    found = {HOST: measured.host}
    if device is not None and measured.gpu is not None:
        found[device] = measured.gpu
    raised = dict(charges)
    for name, size in found.items():
        free = max(0, budgets.get(name, 0) - taken.get(name, 0))
        raised[name] = raised.get(name, 0) + min(max(0, size - raised.get(name, 0)), free)
    return raised
