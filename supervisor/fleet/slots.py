"""All slots and workers: where a wish for a model becomes a worker."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from modelsup.worker.contract import LaunchSpec

from ..domain import Failure, Footprint, FootprintKey, GpuContext, PreparedKey, SlotKey
from ..errors import (
    BadDevice,
    BadSource,
    LoadFailed,
    Stopping,
    StoreFailed,
    SupervisorError,
    UnknownModel,
    UnknownWorker,
)
from ..policy.admission import HOST, Candidate, Wait, decide, total
from ..policy.residency import idle_time
from ..states import State
from .admission import Admission
from .crews import Crews
from .ledger import parked, recharged
from .measuring import Measuring, ModelFiles
from .preparations import Preparations
from .replicas import Refill, wanted
from .roster import Roster
from .slot import Slot
from .views import Books
from .wear import Wear
from .worker import Worker

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Coroutine

    from ..domain import CatalogueEntry, Prepare
    from ..policy.admission import Decision, Snapshot
    from .clients import Clients
    from .contexts import Contexts
    from .crew import Crew
    from .ledger import Charge, Ledger
    from .ports import FormCache, Sources, Store
    from .services import Services

logger = logging.getLogger(__name__)

MIG: Final = "MIG-"  # how the UUIDs of parts of GPUs begin


@dataclass(frozen=True, slots=True)
class Defaults:
    """What holds where a model or client says nothing else. Times in seconds."""

    autoload: bool = True
    lease_ttl: float = 600.0
    idle_ttl: float = 0.0  # 0: never unloaded for idleness
    request_timeout: float = 300.0
    threads: int | None = None
    max_batch_size: int = 64
    max_queue: int = 1000  # requests that wait for one model
    max_body_size: int = 256 * 2**20  # bytes
    queue_timeout: float = 30.0  # for room
    max_requests: int = 0  # of one worker; 0: any number
    recycle_above: int = 0  # bytes of a worker's private memory; 0: never
    prepare: Prepare = "auto"
    prepare_timeout: float = 900.0
    keep_ram: int | None = None  # bytes of weights that are held; None: a share of the budget


class Slots:
    """Slots by key, and their workers."""

    def __init__(
        self,
        services: Services,
        sources: Sources,
        store: Store,
        forms: FormCache,
        defaults: Defaults,
        rng: random.Random,
        clients: Clients,
        ledger: Ledger,
        contexts: Contexts,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        changed: Callable[[], None],
        renewed: Callable[[CatalogueEntry], CatalogueEntry],
    ) -> None:
        """`changed` is called when a worker or a prepared form has come, moved or gone.

        `renewed` returns an entry with the options that the catalogue has now.
        """
        self._services = services
        self._sources = sources
        self._measuring = Measuring(sources)
        self._store = store
        self._defaults = defaults
        self._rng = rng
        self._clients = clients
        self._ledger = ledger
        self._contexts = contexts
        self.events = services.events
        self.admission = Admission(
            ledger, self, services.clock, services.events, defaults.queue_timeout
        )
        self.preparations = Preparations(
            services,
            forms,
            defaults.prepare,
            defaults.prepare_timeout,
            self.room_to_prepare,
            store,
            self.persist,
            spawn,
            self._note_change,
        )
        self.roster = Roster()
        self.refill = Refill(self, spawn)
        self._workers: dict[str, Worker] = {}
        self.crews = Crews(defaults.max_queue)
        self._measured: set[str] = set()  # workers whose footprint was taken
        self._spawn = spawn
        self._changed = changed
        self._renewed = renewed
        self.stopping = False

    def of_model(self, model: str) -> list[Slot]:
        """Return the slots of a model, first those of requests that name no version."""
        return self.roster.of_model(model, self.crews.latest)

    def workers(self) -> list[Worker]:
        """Return the workers that live, the stuck and leaked ones included."""
        return list(self._workers.values())

    def worker(self, uid: str) -> Worker:
        """Return one worker. Raises UnknownWorker."""
        if uid not in self._workers:
            raise UnknownWorker(f"there is no worker {uid}; it may have ended")
        return self._workers[uid]

    def close(self) -> None:
        """Start no worker any more and route nothing."""
        self.stopping = True
        self.crews.close()

    async def get(self, entry: CatalogueEntry, version: str | None, client: str = "") -> Slot:
        """Return the slot, made at need, for a version of a model; None: the highest one.

        Of several replicas it is the one that is nearest to serving.
        """
        self._refuse_when_stopping()
        loaded = self.crews.latest.get(entry.name) if version is None else version
        if loaded is not None:
            slot = self.roster.best(SlotKey(entry.name, loaded, client))
            if slot is not None and slot.current is not None:
                return slot
        files = await self.files_of(entry, version)
        await self.preparations.look(entry, self._prepared_key(entry, files.digest))
        self._refuse_when_stopping()
        entry = self._renewed(entry)
        key = SlotKey(entry.name, files.version, client)
        slot = self.roster.best(key) or self._make(key, entry, files)
        if slot.current is None:  # it may be left from a load of another source that failed
            slot.files = files
            self.renew(slot, entry)
        if version is None and not client:
            self.crews.latest[entry.name] = files.version
            self.crews.update(slot)
        return slot

    def replicas(self, slot: Slot) -> list[Slot]:
        """Return as many slots as a slot's model is to have workers, made at need.

        Those that are nearest to serving come first.
        """
        number, slots = wanted(slot.key, slot.entry.options), self.roster.crew(slot.key)
        slots += [self._add_to(slot) for _ in range(number - len(slots))]
        return slots[:number]

    def vacancy(self, slot: Slot) -> Slot:
        """Return a slot of a slot's crew that has no worker, made at need."""
        slots = self.roster.crew(slot.key)
        return next((s for s in slots if s.state == "unloaded"), None) or self._add_to(slot)

    def _add_to(self, slot: Slot) -> Slot:
        """Make one more slot of a crew, like the one that is there."""
        taken = {other.key.replica for other in self.roster.crew(slot.key)}
        number = next(number for number in itertools.count() if number not in taken)
        made = self._make(replace(slot.key, replica=number), slot.entry, slot.files)
        self.renew(made, slot.entry)
        made.idle_ttl = slot.idle_ttl
        return made

    def _make(self, key: SlotKey, entry: CatalogueEntry, files: ModelFiles) -> Slot:
        slot = Slot(key, entry, files, self, self._services.clock, self._rng.random)
        self.roster.put(slot)
        return slot

    async def turn(self, entry: CatalogueEntry, version: str | None, client: str = "") -> Worker:
        """Wait for the turn of a request; return the worker at which it has begun.

        Raises QueueFull at once, or what comes in the way of a load.
        """
        name, flow = entry.name, self.crews.flow(entry)
        key = SlotKey(name, version or self.crews.latest.get(name, ""), client)
        crew = self.crews.find(key)
        most = flow.most(0, 0) if crew is None else crew.most_waiting
        with self.crews.queue(name).place(most):
            while True:
                slot = await self.get(entry, version, client)
                crew = self.crews.of(slot)
                if not crew.ready:
                    try:
                        await (_any_ready(slot, crew) if slot.replicated else slot.ensure_ready())
                    except SupervisorError:
                        if not any(other.is_coming for other in self._others(slot)):
                            raise
                worker = crew.next() or await crew.until_turn()
                if worker is not None:
                    return worker

    async def files_of(self, entry: CatalogueEntry, version: str | None) -> ModelFiles:
        """Return the files of a version of a model; None: the highest one.

        Raises UnknownModel for a version that is not there, LoadFailed for files that are no model.
        """
        try:
            found, path = await asyncio.to_thread(self._sources.resolve, entry, version)
            return ModelFiles(found, path, *await self._measuring.of(path))
        except BadSource as error:
            versions = self._sources.versions(entry)  # none: it is the whole source that is lost
            if version is not None and versions and version not in versions:
                raise UnknownModel(str(error), model=entry.name) from error
            raise LoadFailed(
                f"model {entry.name} could not be loaded: {error}",
                model=entry.name,
                failure=Failure("bad_model", str(error), at=self._services.clock.wall()),
            ) from error

    def renew(self, slot: Slot, entry: CatalogueEntry) -> None:
        """Let a slot take what the catalogue says now."""
        slot.wear = Wear(
            _said(entry.options.max_requests, self._defaults.max_requests),
            _said(entry.options.recycle_above, self._defaults.recycle_above),
            self._defaults.request_timeout,
        )
        options = entry.options
        slot.renew(entry, idle_time(options.keep, options.ttl, self._defaults.idle_ttl or None))
        self.crews.update(slot)

    def _refuse_when_stopping(self) -> None:
        if self.stopping:
            raise Stopping("the supervisor is shutting down")

    # --- room ---

    async def measure(self, slot: Slot) -> None:
        """Look how large the model's files are, which may have been replaced, and what they are."""
        files = slot.files
        with suppress(BadSource):  # the load that follows tells of it
            size, digest = await self._measuring.of(files.path)
            slot.files = replace(files, size=size, digest=digest)
        await self.preparations.look(slot.entry, self._prepared_key(slot.entry, slot.files.digest))

    async def admit(self, slot: Slot) -> None:
        """Wait for room and start the slot's worker. Raises SupervisorError."""
        self._refuse_when_stopping()
        self._refuse_surplus(slot)
        self._check_device(slot)
        await self.admission.admit(slot)

    def _refuse_surplus(self, slot: Slot) -> None:
        """Refuse a wish from before the model was to have fewer workers."""
        others = sum(other.is_coming for other in self._others(slot))
        if others >= wanted(slot.key, slot.entry.options):
            name = slot.key.model
            raise Stopping(f"model {name} has as many workers as it is to have", model=name)

    def _others(self, slot: Slot) -> list[Slot]:
        return [other for other in self.roster.crew(slot.key) if other is not slot]

    def withdraw(self, slot: Slot, error: Exception) -> None:
        """Take the slot out of the queue for room."""
        self.admission.withdraw(slot, error)

    def room_beside(self, slot: Slot) -> Charge | None:
        """Return the charge of a second worker of the slot if that fits now, beside all others."""
        return None if self.stopping else self.admission.room_now(slot)

    def charges_parked(self, slot: Slot, worker: Worker) -> dict[str, int] | None:
        """Return what an idle worker is charged once it is parked; None: it is to be unloaded."""
        device = worker.spec.device
        is_parkable = device is not None and not device.startswith(MIG)  # CUDA cannot do those
        if slot.entry.options.keep != "ram" or not is_parkable or self._services.parking.reason:
            return None
        return parked(worker, self.snapshot())

    def snapshot(self, clients: Collection[str] = (), beside: SlotKey | None = None) -> Snapshot:
        """Return what holds memory now, as a wish of these clients finds it.

        `beside`: the crew whose workers have to stay, for it is one more of them that is wished.
        """
        making = self.preparations.residents()
        slots, workers = self.roster.all(), self.workers()
        return self._ledger.snapshot(slots, workers, clients, making, beside)

    def books(self) -> Books:
        """Return the budgets, the charges and the queue."""
        snapshot = self.snapshot()
        return Books(
            budgets=dict(snapshot.budgets),
            charged=total(snapshot.residents),
            own=self._ledger.own_memory(),
            queue=self.admission.queue,
        )

    async def look(self, entry: CatalogueEntry) -> None:
        """Find out whether a model has a prepared form. Raises SupervisorError."""
        files = await self.files_of(entry, None)
        await self.preparations.look(entry, self._prepared_key(entry, files.digest))

    async def prepare(self, entry: CatalogueEntry, *, asked: bool = True) -> None:
        """Make a model's prepared form and wait for it, or only see to it that it is made.

        Raises SupervisorError.
        """
        files = await self.files_of(entry, None)
        key = self._prepared_key(entry, files.digest)
        if asked:
            await self.preparations.prepare(entry, key, files)
        else:
            await self.preparations.prepare_soon(entry, key, files)

    def room_to_prepare(self, host: int) -> Decision:
        """Decide on so many bytes of host memory, for what gives way to all who wait."""
        if self.admission.queue:
            return Wait(())
        return decide(self.snapshot(), [Candidate(None, {HOST: host})])

    def learned(self, slot: Slot) -> Footprint | None:
        """Return what was measured of the slot's model before, in the form it is loaded from."""
        key = self._prepared_key(slot.entry, slot.files.digest)
        forms = (True, False) if self.preparations.has_form(slot.entry, key) else (False,)
        found = (self._footprint(self._footprint_key(slot, prepared=form)) for form in forms)
        return next((footprint for footprint in found if footprint is not None), None)

    def _footprint(self, key: FootprintKey) -> Footprint | None:
        try:
            return self._store.footprint(key)
        except StoreFailed as error:
            logger.error("what was learned cannot be read: %s", error)  # noqa: TRY400
            return None

    def _footprint_key(self, slot: Slot, *, prepared: bool) -> FootprintKey:
        key = self._prepared_key(slot.entry, slot.files.digest)
        return FootprintKey(key.digest, key.runtime, key.device, prepared)

    def _prepared_key(self, entry: CatalogueEntry, digest: str) -> PreparedKey:
        on_gpu = entry.options.device != "cpu" and bool(self._services.devices.all())
        return PreparedKey(digest, entry.runtime, "gpu" if on_gpu else "cpu")

    async def _learn(self, slot: Slot, worker: Worker) -> None:
        """Keep a ready worker's footprint, and charge it for what it really takes."""
        await worker.gpu.measure()
        if not worker.memory or worker.state is not State.READY:
            return
        footprint = Footprint(
            stages=worker.memory,
            gpu=worker.gpu.bytes,
            seconds=worker.seconds["total"],
            framework=worker.framework,
            gpu_context=self._context_of(slot, worker),
        )
        key = self._footprint_key(slot, prepared=worker.from_prepared)
        self.persist(self._store.put_footprint, key, footprint)
        if worker.spec.device is None or worker.gpu.bytes is not None:
            worker.estimated = False
        snapshot = self.snapshot()
        worker.charges = recharged(
            worker.charges, footprint, worker.spec.device, snapshot.budgets, snapshot.residents
        )

    async def _note_form(self, slot: Slot, worker: Worker) -> None:
        key = self._prepared_key(slot.entry, slot.files.digest)
        await self.preparations.on_ready(slot.entry, key, slot.files, worker)

    async def _learn_context(self, slot: Slot, worker: Worker) -> None:
        """Keep what a worker holds of its GPU while it stands still before its load."""
        device, framework = worker.spec.device, worker.framework
        size = await worker.gpu.now()
        if device is not None and size:
            self._contexts.learn(GpuContext(slot.entry.runtime, device, framework, size))
        worker.go_on()

    def _context_of(self, slot: Slot, worker: Worker) -> int:
        """Return what was measured of a ready worker's context; where it is old, have it redone."""
        device, runtime = worker.spec.device, slot.entry.runtime
        if device is None:
            return 0
        self._contexts.see(runtime, worker.framework, device)
        return self._contexts.measured(runtime, device)

    def _learn_most(self, worker: Worker) -> None:
        """Keep the most that an ended worker was seen to hold of its GPU, for its next cap."""
        slot, most = self.roster.find(worker.key), worker.gpu.most
        if slot is None or not most:
            return
        key = self._footprint_key(slot, prepared=worker.from_prepared)
        footprint = self._footprint(key)
        if footprint is not None and most > (footprint.gpu or 0):
            self.persist(self._store.put_footprint, key, replace(footprint, gpu=most))

    def _suspect_form(self, worker: Worker) -> None:
        """Where a worker died while it loaded a prepared form, let the next do without."""
        slot, died = self.roster.find(worker.key), worker.failure is not None
        if slot is not None and died and worker.spec.prepared and worker.ready_at is None:
            key = self._prepared_key(slot.entry, slot.files.digest)
            self.preparations.on_failed(slot.entry, key, worker)

    def evict(self, worker: str, reason: str) -> None:
        """Begin to unload a worker, or to end what prepares a model."""
        if self.preparations.evict(worker, reason):
            return
        slot = self.roster.find(self._workers[worker].key)
        if slot is not None:
            slot.evict(reason)

    def make_worker(self, slot: Slot, charge: Charge) -> Worker:
        """Make a worker for a slot."""
        self._refuse_when_stopping()
        device, options = charge.device, slot.entry.options
        form = self.preparations.use(slot.entry, self._prepared_key(slot.entry, slot.files.digest))
        uid = f"w-{secrets.token_hex(4)}"
        spec = LaunchSpec(
            uid=uid,
            model=slot.key.model,
            version=slot.key.version,
            runtime=slot.entry.runtime,
            source=slot.files.path,
            secret=secrets.token_urlsafe(24),
            temp_dir=self._services.temp_dir(uid),
            device=device.uuid if device else None,
            gpu_memory_limit=charge.gpu_memory_limit,
            measure_context=device is not None
            and self._contexts.is_wanted(slot.entry.runtime, device.uuid),
            host_memory_limit=options.ram,
            threads=options.threads or self._defaults.threads,
            max_batch_size=options.max_batch_size or self._defaults.max_batch_size,
            max_delay=options.max_delay or 0.0,
            preferred_batch_sizes=options.preferred_batch_sizes or [],
            warm_up_batch=options.warm_up_batch or 1,
            max_body_size=self._defaults.max_body_size,
            image=options.image,
            classes=options.classes,
            prepared=form.folder if form is not None else None,
        )

        crew = self.crews.of(slot)

        def on_end() -> None:
            if not worker.serves:
                self.crews.update(slot)
            crew.hand_over()
            if not worker.traffic.in_flight:
                slot.on_requests_ended()
                self.admission.poke()

        def measure(opened: Worker) -> None:
            self._spawn(self._learn_context(slot, opened))

        worker = Worker(
            slot.key,
            spec,
            self._services,
            slot.on_worker_change,
            on_end=on_end,
            on_device_open=measure,
            restarts=slot.restarts,
        )
        worker.charges = charge.candidate.charges
        worker.estimated = charge.estimated
        self._workers[uid] = worker
        return worker

    def _check_device(self, slot: Slot) -> None:
        try:
            self._services.devices.choose(slot.entry.options.device)
        except BadDevice as error:
            failure = Failure("load_error", str(error), at=self._services.clock.wall())
            raise LoadFailed(str(error), model=slot.key.model, failure=failure) from error

    def fingerprint(self, slot: Slot) -> object:
        """Return a value that changes when the files of the slot's model do."""
        return self._sources.fingerprint(slot.entry)

    def is_leased(self, slot: Slot) -> bool:
        """Return whether a live client holds the slot."""
        return bool(self._clients.holders([slot.key]))

    def fellows(self, slot: Slot) -> list[Slot]:
        """Return the slots whose workers serve the same, this one included."""
        return self.roster.crew(slot.key)

    def slot_changed(self, slot: Slot) -> None:
        """Keep routes, the wanted set and the list of workers true to the slot."""
        self._forget_ended_workers()
        self._take_note(slot)
        self.admission.poke()
        self.preparations.poke()
        self._note_change()

    def _note_change(self) -> None:
        self.refill.poke()
        self._changed()

    def _take_note(self, slot: Slot) -> None:
        if self.roster.find(slot.key) is not slot:  # another one has taken its place
            return
        worker = slot.current
        self.crews.update(slot)
        for new in slot.workers:
            if new.state is State.LOADING and new.handle is not None:
                self.persist(self._store.add_worker, new.uid, slot.key.model, new.handle.pid)
        if worker is not None and worker.state is State.READY:
            self.persist(self._store.add_wanted, slot.key.crew)
            if worker.uid not in self._measured:
                self._measured.add(worker.uid)
                self._spawn(self._learn(slot, worker))
                self._spawn(self._note_form(slot, worker))
        elif not self.stopping and not self.roster.is_loaded(slot.key):
            self.persist(self._store.remove_wanted, slot.key.crew)
        if self._is_over(slot):
            self._forget(slot)
        else:
            self.forget_empty(slot)

    def forget_empty(self, slot: Slot) -> None:
        """Drop a slot in which nothing is left to remember."""
        if slot.empty and self.roster.find(slot.key) is slot:
            self._forget(slot)
            self._forget_failures_beside(slot)

    def _forget(self, slot: Slot) -> None:
        self.roster.remove(slot)
        if not self.roster.crew(slot.key):
            self.crews.forget(slot.key.crew)

    def _forget_failures_beside(self, slot: Slot) -> None:
        """Drop failed replicas once the last that served has gone: the next may try anew."""
        rest = self.roster.crew(slot.key)
        if all(other.state == "failed" and not other.waiting for other in rest):
            for other in rest:
                self._forget(other)

    def forget_model(self, model: str) -> None:
        """Drop what is remembered of a model that is not loaded, such as its failure."""
        self.crews.latest.pop(model, None)
        self.preparations.forget(model)
        for slot in self.of_model(model):
            if not slot.waiting:
                self._forget(slot)

    def _is_over(self, slot: Slot) -> bool:
        """Whether it is the failed try of a client that holds something else, or nothing."""
        private = bool(slot.key.client)
        return private and slot.state == "failed" and not self.is_leased(slot)

    def _forget_ended_workers(self) -> None:
        for uid, worker in list(self._workers.items()):
            if worker.state in {State.GONE, State.FAILED}:
                del self._workers[uid]
                self._learn_most(worker)
                self._suspect_form(worker)
                self._measured.discard(uid)
                self.persist(self._store.remove_worker, uid)

    def persist(self, write: Callable[..., None], *values: object) -> None:
        """Write to the store; a failure costs the restart, not the request."""
        try:
            write(*values)
        except StoreFailed as error:
            logger.error("this will not survive a restart: %s", error)  # noqa: TRY400


async def _any_ready(slot: Slot, crew: Crew) -> None:
    """Wait until a worker of a crew is ready, be it that of the slot or another one."""
    wish = asyncio.ensure_future(slot.ensure_ready())
    fellow = asyncio.ensure_future(crew.until_ready())
    try:
        await asyncio.wait({wish, fellow}, return_when=asyncio.FIRST_COMPLETED)
        if not crew.ready:
            await wish
    finally:
        fellow.cancel()
        wish.cancel()
        await asyncio.gather(wish, fellow, return_exceptions=True)


def _said(value: int | None, default: int) -> int:
    return default if value is None else value
