"""All workers, slots and leases; the one place that the outside asks for models."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..domain import Failure, Lease, Options, Receipt
from ..errors import (
    DoesNotFit,
    Held,
    LoadFailed,
    NotLoaded,
    SourceConflict,
    StillLoaded,
    Stopping,
    Superseded,
    TimedOut,
    UnknownClient,
    UnknownModel,
)
from ..policy.admission import HOST
from ..states import ENDED, State
from .catalogue import Catalogue
from .clients import Clients, Swap
from .contexts import Contexts
from .entries import check_entry
from .ledger import Ledger, asked_cap
from .replicas import surplus, wanted
from .residency import Residency
from .show import client_view, model_view, worker_view
from .slots import Slots
from .views import Loaded, Released, Scaled, Swapped

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine, Iterable, Iterator, Sequence

    from ..domain import CatalogueEntry, Outcome, SlotKey
    from .clients import Hold
    from .events import Events
    from .ledger import Reserve
    from .ports import FormCache, Host, Pages, Sources, Store
    from .preparations import Preparations
    from .residency import Resting
    from .services import Services
    from .slot import Slot
    from .slots import Defaults
    from .views import Books, ClientView, ModelView, Plan, PreparedView, WorkerView
    from .worker import Worker

logger = logging.getLogger(__name__)

KEPT_SHARE: Final = 0.25  # of the budget, for weights in RAM, where no setting says how much


class Fleet:
    """Owner of all state; every method runs on the event loop."""

    def __init__(
        self,
        services: Services,
        sources: Sources,
        store: Store,
        forms: FormCache,
        host: Host,
        pages: Pages,
        defaults: Defaults,
        reserve: Reserve,
        rng: random.Random,
    ) -> None:
        self._services = services
        self._sources = sources
        self._store = store
        self._defaults = defaults
        self._clients = Clients(services.clock, self._on_lease_expired)
        contexts = Contexts(
            reserve.gpu_context,
            store.contexts(),
            lambda context: self._slots.persist(store.put_context, context),
        )
        clock = services.clock
        ledger = Ledger(services.devices, host, self._clients, clock, reserve, contexts)
        self._slots = Slots(
            services,
            sources,
            store,
            forms,
            defaults,
            rng,
            self._clients,
            ledger,
            contexts,
            self._spawn,
            lambda: self._residency.poke(),
            self._with_options_of_now,
        )
        self._catalogue = Catalogue(
            sources,
            lambda entry: self._slots.persist(store.put_model, entry),
            lambda name: self._slots.persist(store.delete_model, name),
        )
        self._residency = Residency(
            pages, clock, self._resting_forms, self._room_to_hold, self._spawn
        )
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def events(self) -> Events:
        """What happened lately."""
        return self._services.events

    @property
    def preparations(self) -> Preparations:
        """What is known of prepared forms."""
        return self._slots.preparations

    # --- predictions: the hot path ---

    def ready(self, model: str, version: str | None = None) -> Worker | None:
        """Return a shared worker that is ready."""
        crew = self._slots.crews.route(model, version)
        return crew.ready[0] if crew is not None else None

    def serving(self, model: str, version: str | None = None) -> Sequence[Worker]:
        """Return all shared workers that are ready."""
        crew = self._slots.crews.route(model, version)
        return crew.ready if crew is not None else ()

    async def ensure_ready(self, model: str, version: str | None = None) -> Worker:
        """Return a ready shared worker, loading the model if need be. Raises SupervisorError."""
        slot = await self._slots.get(self._loadable(model), version)
        return await slot.ensure_ready()

    async def ensure_ready_for_client(self, client: str) -> Worker:
        """Return a ready worker of a client's current model. Raises SupervisorError."""
        key = self._hold(client).lease.key
        slot = await self._slots.get(self._catalogue.get(key.model), key.version, key.client)
        return await slot.ensure_ready()

    def take(self, model: str, version: str | None = None) -> Worker | None:
        """Return a shared worker at which a request has begun; None: it waits for its `turn`."""
        crew = self._slots.crews.route(model, version)
        return crew.take() if crew is not None else None

    async def turn(self, model: str, version: str | None = None) -> Worker:
        """Return a shared worker at which a request has begun, once its turn has come.

        Loads the model if need be. Raises SupervisorError.
        """
        return await self._slots.turn(self._loadable(model), version)

    def take_for_client(self, client: str) -> Worker | None:
        """Do as `take` does with a client's current model; renews the lease."""
        key = self._clients.use(client)
        crew = self._slots.crews.find(key) if key is not None else None
        return crew.take() if crew is not None else None

    async def turn_for_client(self, client: str) -> Worker:
        """Do as `turn` does with a client's current model."""
        key = self._hold(client).lease.key
        return await self._slots.turn(self._catalogue.get(key.model), key.version, key.client)

    def _loadable(self, model: str) -> CatalogueEntry:
        """Return the entry of a model that is loaded, or may be. Raises UnknownModel."""
        entry = self._catalogue.get(model)
        if not self._defaults.autoload and not self._slots.roster.loaded(model):
            raise UnknownModel(
                f"model {model} is not loaded, and loading on request is off", model=model
            )
        return entry

    def waiting(self, model: str, version: str | None = None) -> int:
        """Return how many requests wait for a ready worker of a model to have room."""
        crew = self._slots.crews.route(model, version)
        return crew.waiting if crew is not None else 0

    def labelled(self, model: str, label: str) -> str:
        """Return the version that a label of a model stands for. Raises UnknownModel."""
        labels = self._catalogue.get(model).options.labels or {}
        if label not in labels:
            known = ", ".join(sorted(labels)) or "none"
            raise UnknownModel(
                f"model {model} has no version with the label {label}; its labels: {known}",
                model=model,
            )
        return labels[label]

    def retries(self, worker: Worker) -> bool:
        """Return whether a request may go to another worker once this one has died of something."""
        entry = self._catalogue.find(worker.key.model)
        return entry is None or entry.options.retry is not False

    def report_hung(self, worker: Worker) -> None:
        """Take note of a request that got no answer in its time.

        A worker that has answered nothing else meanwhile is ended and replaced.
        """
        silent = self._services.clock.monotonic() - worker.traffic.last_answer
        if worker.state is State.READY and silent >= self._defaults.request_timeout:
            message = f"it answered nothing for {silent:.0f} s while a request waited"
            worker.condemn(Failure("hung", message))

    def report_overdue(self, worker: Worker) -> None:
        """Take note of a request that got no answer before its own, shorter time was up.

        A worker to which this happens for as long as a request may take, while it answers nothing,
        is ended and replaced.
        """
        now, traffic = self._services.clock.monotonic(), worker.traffic
        if traffic.overdue_since is None:
            traffic.overdue_since = now
        silent = now - traffic.overdue_since
        if worker.state is State.READY and silent >= self._defaults.request_timeout:
            message = f"it answered nothing for {silent:.0f} s while requests ran out of their time"
            worker.condemn(Failure("hung", message))

    def keep_alive(self, worker: Worker, seconds: float) -> None:
        """Set how long a worker stays after its last request; always, if negative.

        It holds until the next call, or a load of the model.
        """
        for slot in self._slots.roster.crew(worker.key):
            slot.keep_alive(None if seconds < 0 else seconds)

    # --- catalogue ---

    def put_model(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> tuple[ModelView, bool]:
        """Add or change a model without loading it; return it and whether it is new.

        Of a model that is loaded, the number of workers follows. Raises Invalid, UnknownModel, or
        SourceConflict while another source is loaded.
        """
        known = self._catalogue.find(name)
        self._amend(name, source, runtime, options)
        return self.model(name), known is None

    def _amend(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> list[asyncio.Task[Receipt | None]]:
        """Change the catalogue; return the ends of the workers that are too many now."""
        known = self._catalogue.find(name)
        entry = self._catalogue.amended(name, source, runtime, options)
        check_entry(entry, self._services.devices, self._defaults.max_batch_size)
        if known is not None:
            loaded = self._slots.roster.loaded(name)
            if loaded and (known.source, known.runtime) != (entry.source, entry.runtime):
                raise SourceConflict(
                    f"model {name} is loaded from {known.source or known.runtime}; "
                    "unload it first, or choose another name",
                    model=name,
                )
            for slot in self._slots.of_model(name):
                self._slots.renew(slot, entry)
        if entry != known:
            self._catalogue.put(entry)
            self._see_to_form(entry)
            self._residency.poke()
        return self._trim(entry)

    def _with_options_of_now(self, entry: CatalogueEntry) -> CatalogueEntry:
        now = self._catalogue.find(entry.name)
        return entry if now is None else replace(entry, options=now.options)

    def _trim(self, entry: CatalogueEntry) -> list[asyncio.Task[Receipt | None]]:
        """Begin to end the workers that are too many, once they have answered what they have."""
        self._slots.refill.poke()
        roster = self._slots.roster
        crews = {slot.key.crew: None for slot in self._slots.of_model(entry.name)}
        extra = [
            slot for key in crews for slot in surplus(roster.crew(key), wanted(key, entry.options))
        ]
        for slot in extra:
            slot.unwish()
        return [self._spawn(slot.stop(slot.wear.drain)) for slot in extra]

    def _said(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> CatalogueEntry:
        """Return the entry of a model, with what a wish for it says besides."""
        if source is not None or runtime is not None or options is not None:
            self.put_model(name, source, runtime, options)
        return self._catalogue.get(name)

    def remove_model(self, name: str) -> None:
        """Forget a model. Raises UnknownModel, or StillLoaded."""
        self._catalogue.get(name)
        if self._slots.roster.loaded(name):
            raise StillLoaded(f"model {name} is loaded; unload it first", model=name)
        self._catalogue.remove(name)
        self._slots.forget_model(name)

    # --- load and unload ---

    async def load(
        self,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        wait: float = 600.0,
    ) -> Loaded | None:
        """Load a model and keep it loaded; None when it is not ready within `wait` seconds.

        It is ready when all its workers are. Where some of them cannot be had, this raises what
        came in the way, once the others are ready; these stay. The load goes on if the caller
        stops waiting. Raises SupervisorError.
        """
        started = self._services.clock.monotonic()
        entry = self._said(name, source, runtime, options)
        slot = await self._slots.get(entry, None)
        crew = self._slots.roster.crew(slot.key)
        serving = [fellow for fellow in crew if fellow.state == State.READY]
        for fellow in serving:
            self._slots.renew(fellow, entry)  # what a request said of its idle time ends here
        already = len(serving) == wanted(slot.key, entry.options)
        slot.explicit = True
        slot.forget_failure()
        ready = self._spawn(self._all_ready(slot))
        done, _ = await asyncio.wait({ready}, timeout=wait)
        if not done:
            return None
        return self._loaded(slot, ready.result(), already, started)

    async def _all_ready(self, first: Slot) -> list[Worker]:
        """Return the ready workers of a crew, once they are as many as it is to have.

        One is loaded alone, which shows that the model can be, and what it takes; then the others
        side by side. Raises what came in the way of one of them when all others are ready.
        """
        await first.ensure_ready()
        slots = self._slots.replicas(first)
        for slot in slots:
            slot.explicit = True
            slot.forget_failure()
        wishes = (slot.ensure_ready() for slot in slots)
        came = await asyncio.gather(*wishes, return_exceptions=True)
        errors = [error for error in came if isinstance(error, BaseException)]
        workers = [worker for worker in came if not isinstance(worker, BaseException)]
        if errors:
            raise _of_some(errors[0], first.key.model, len(workers), len(slots))
        return workers

    def _loaded(self, slot: Slot, workers: list[Worker], already: bool, started: float) -> Loaded:
        worker = workers[0]
        memory = [w.handle.memory() for w in workers if w.handle]
        seconds = dict(worker.seconds)
        seconds["total"] = self._services.clock.monotonic() - started
        return Loaded(
            model=slot.key.model,
            version=slot.key.version,
            worker=worker.uid,
            already_loaded=already,
            seconds=seconds,
            host_bytes=sum(m.uss for m in memory if m),
            warnings=self._warnings(slot, worker),
            workers=tuple(w.uid for w in workers),
        )

    async def scale(self, name: str, replicas: int, wait: float = 600.0) -> Scaled | None:
        """Change how many workers a model has; None when that takes longer than `wait` seconds.

        A model that is not loaded stays so. What is begun goes on if the caller stops waiting.
        Raises UnknownModel, or as `load` does where the model is loaded.
        """
        started = self._services.clock.monotonic()
        self._catalogue.get(name)
        leaving = self._amend(name, None, None, Options(replicas=replicas))
        done = self._spawn(self._settled(name, leaving))
        await asyncio.wait({done}, timeout=wait)
        if not done.done():
            return None
        workers, receipts = done.result()
        seconds = self._services.clock.monotonic() - started
        return Scaled(name, replicas, tuple(w.uid for w in workers), receipts, seconds)

    async def _settled(
        self, name: str, leaving: list[asyncio.Task[Receipt | None]]
    ) -> tuple[list[Worker], tuple[Receipt, ...]]:
        """Wait until a model that is loaded has as many workers as it is to have, and no more."""
        slots = self._slots.of_model(name)
        first = next((slot for slot in slots if slot.kept and not slot.key.client), None)
        workers = await self._all_ready(first) if first is not None else []
        receipts = await asyncio.gather(*leaving)
        return workers, tuple(r for r in receipts if r is not None)

    def _warnings(self, slot: Slot, worker: Worker) -> tuple[str, ...]:
        options = slot.entry.options
        asked = options.gpu_memory or options.gpu_memory_fraction
        device = worker.spec.device
        if asked and device is None:
            where = "on the CPU" if options.device == "cpu" else "on a machine without a GPU"
            return (f"the GPU memory option has no effect {where}",)
        caps = [asked_cap(options, d) for d in self._services.devices.all() if d.uuid == device]
        if asked and caps and worker.spec.gpu_memory_limit not in caps:
            return ("the model was loaded before this GPU memory option; unload it to apply it",)
        return ()

    async def unload(
        self,
        name: str,
        force: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - for the drain, not for this call
    ) -> list[Receipt]:
        """Unload every worker of a model; return their receipts.

        `timeout` bounds the draining, in seconds. `force` drains nothing and ends the leases of
        the clients that hold the model; without it they make this raise Held.
        Raises UnknownModel, NotLoaded, Held, TimedOut.
        """
        self._catalogue.get(name)
        slots = self._slots.roster.loaded(name)
        if not slots:
            raise NotLoaded(f"model {name} is not loaded", model=name)
        holders = self._clients.holders(s.key for s in slots)
        if holders and not force:
            raise Held(
                f"model {name} is held by {_clients_text(holders)}; "
                "let them release it, or force the unload",
                model=name,
                clients=holders,
            )
        for client in holders:
            self._end_lease(client, "its model was unloaded by force")
        drain = 0.0 if force else self._drain_time(timeout)
        outcome: Outcome = "drained" if {s.state for s in slots} == {"queued"} else "crashed"
        receipts = await self._stop(slots, drain, force=force)
        return receipts or [Receipt(name, "", outcome)]

    def _drain_time(self, timeout: float | None) -> float:
        return self._services.timeouts.drain if timeout is None else timeout

    async def _stop(self, slots: list[Slot], drain: float, *, force: bool = False) -> list[Receipt]:
        """Unload all workers of crews, and tell the requests that wait for them."""
        for slot in slots:
            name = slot.key.model
            unloaded = Stopping(f"model {name} was unloaded while the request waited", model=name)
            self._slots.crews.of(slot).dismiss(unloaded)
            slot.unwish()
        stops = (self._stop_one(slot, drain, force=force) for slot in slots)
        return [receipt for receipt in await asyncio.gather(*stops) if receipt is not None]

    async def _stop_one(self, slot: Slot, drain: float, *, force: bool) -> Receipt | None:
        worker = slot.current
        receipt = await slot.stop(drain, force=force)
        if receipt is None and worker is not None and worker.state is State.STUCK:
            raise TimedOut(
                f"worker {worker.uid} of model {slot.key.model} does not exit even after SIGKILL; "
                "it stays listed, and its memory in use, until it does",
                model=slot.key.model,
            )
        return receipt

    async def plan(self, name: str) -> Plan:
        """Return what a load would do now, without doing it: for the next worker that is lacking.

        Raises UnknownModel, LoadFailed.
        """
        slots = self._slots.replicas(await self._slots.get(self._catalogue.get(name), None))
        try:
            lacking = next((slot for slot in slots if slot.current is None), slots[0])
            return self._slots.admission.plan(lacking)
        finally:
            for slot in slots:
                self._slots.forget_empty(slot)

    # --- prepared forms ---

    async def prepare(
        self,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        wait: float = 600.0,
    ) -> PreparedView | None:
        """Make a model's prepared form, if it has none; None if it is not there in `wait` seconds.

        The making goes on if the caller stops waiting. Raises SupervisorError.
        """
        entry = self._said(name, source, runtime, options)
        made = self._spawn(self._slots.prepare(entry))
        done, _ = await asyncio.wait({made}, timeout=wait)
        if not done:
            return None
        made.result()
        return self.preparations.view(entry)

    def _see_to_form(self, entry: CatalogueEntry) -> None:
        """Make the form of a model at once if it is to be, or look for one to keep in RAM."""
        if self.preparations.mode(entry) == "now":
            self._spawn(self._slots.prepare(entry, asked=False))
        elif entry.options.keep == "ram":
            self._spawn(self._slots.look(entry))

    # --- where weights are ---

    def _resting_forms(self) -> Iterator[Resting]:
        for entry in self._catalogue.entries():
            form = self.preparations.form(entry)
            if form is not None:
                yield entry.options.keep, form, bool(self._slots.roster.loaded(entry.name))

    def _room_to_hold(self) -> int:
        """Return how many bytes of weights may be held: of what is left, so much as is allowed."""
        books = self._slots.books()
        budget, allowed = books.budgets[HOST], self._defaults.keep_ram
        left = budget - books.charged.get(HOST, 0)
        return max(0, min(left, int(budget * KEPT_SHARE) if allowed is None else allowed))

    # --- clients ---

    async def swap(
        self,
        client: str,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        private: bool = False,
        ttl: float | None = None,
        wait: float = 600.0,
    ) -> Swapped:
        """Make a model the client's current one; the old one goes if nobody else needs it.

        The client keeps its old model when the new one cannot be loaded within `wait` seconds.
        Raises SupervisorError; Superseded when a later swap or release of this client came first.
        """
        started = self._services.clock.monotonic()
        entry = self._said(name, source, runtime, options)
        slot = await self._slots.get(entry, None, client if private else "")
        slot.forget_failure()
        old = self._workers_of(client)
        worker = await self._ready_for_swap(client, slot, wait)
        ready = self._services.clock.monotonic()
        previous = self._take_lease(client, slot.key.crew, ttl)
        receipt, kept = None, None
        if previous is not None:
            receipt, kept = await self._let_go(previous.key, unless=slot.key.crew)
            if kept is None:
                receipt = await _receipt_of(old, receipt)
        return Swapped(
            client=client,
            model=name,
            version=slot.key.version,
            worker=worker.uid,
            previous=previous.key.model if previous else None,
            receipt=receipt,
            kept=kept,
            seconds={
                "load": ready - started,
                "total": self._services.clock.monotonic() - started,
            },
        )

    async def _ready_for_swap(self, client: str, slot: Slot, wait: float) -> Worker:
        """Return a ready worker within `wait` seconds. Raises TimedOut, or Superseded at once."""
        name, swap = slot.key.model, Swap(asyncio.timeout(wait))
        slot.swapping.append(client)
        try:
            async with swap.limit:
                self._clients.begin_swap(client, swap)
                worker = await slot.ensure_ready()
        except TimeoutError:
            if not swap.overtaken:
                raise TimedOut(
                    f"model {name} was not ready within {wait:g} s; "
                    f"client {client} keeps its model",
                    model=name,
                    client=client,
                ) from None
        finally:
            slot.swapping.remove(client)
            self._clients.end_swap(client, swap)
        if not swap.overtaken:
            return worker
        if not slot.explicit:
            await self._let_go(slot.key.crew)
        raise Superseded(
            f"a later swap or release of client {client} took the place of this one",
            model=name,
            client=client,
        )

    async def release(self, client: str) -> Released:
        """End a client's lease; its model goes if nobody else needs it. Raises UnknownClient."""
        return await self._release(client, "released")

    async def _release(self, client: str, why: str) -> Released:
        lease = self._hold(client).lease
        self._clients.overtake(client)
        self._end_lease(client, why)
        receipt, kept = await self._let_go(lease.key)
        return Released(client, lease.key.model, receipt, kept)

    def _workers_of(self, client: str) -> list[Worker]:
        hold = self._clients.hold(client)
        slots = self._slots.roster.crew(hold.lease.key) if hold else []
        return [slot.current for slot in slots if slot.current]

    def _hold(self, client: str) -> Hold:
        hold = self._clients.hold(client)
        if hold is None:
            raise UnknownClient(
                f"client {client} holds no model; its lease may have ended. Swap to a model first",
                client=client,
            )
        return hold

    def _take_lease(self, client: str, key: SlotKey, ttl: float | None) -> Lease | None:
        lease = Lease(client, key, self._services.clock.wall(), ttl or self._defaults.lease_ttl)
        self._slots.persist(self._store.put_lease, lease)
        self._services.events.tell("lease", "a client has a model", client=client, model=key.model)
        return self._clients.put(lease)

    def _end_lease(self, client: str, why: str) -> None:
        self._services.events.tell("lease", "a client's lease ended", client=client, reason=why)
        self._clients.remove(client)
        self._slots.persist(self._store.delete_lease, client)
        self._slots.admission.poke()

    def _on_lease_expired(self, client: str) -> None:
        self._spawn(self._release(client, "unused"))

    async def _let_go(
        self, key: SlotKey, unless: SlotKey | None = None
    ) -> tuple[Receipt | None, str | None]:
        """Unload what a client no longer holds; return the receipt, or why it stays."""
        slots = self._slots.roster.crew(key)
        if key == unless:
            return None, "it is the same model"
        if not slots:
            return None, None
        if slots[0].pinned:
            return None, f"model {key.model} is pinned"
        if holders := self._clients.holders([key]):
            return None, f"model {key.model} is held by {_clients_text(holders)}"
        if any(slot.waiting for slot in slots) or self._slots.crews.of(slots[0]).waiting:
            return None, f"requests wait for model {key.model}"
        receipts = await self._stop(slots, self._services.timeouts.drain)
        return (Receipt.together(receipts) if receipts else None), None

    # --- what there is ---

    def models(self) -> list[ModelView]:
        """Return the catalogue with what is loaded of it."""
        return [self._model_view(entry) for entry in self._catalogue.entries()]

    def model(self, name: str) -> ModelView:
        """Return one model. Raises UnknownModel."""
        return self._model_view(self._catalogue.get(name))

    def _model_view(self, entry: CatalogueEntry) -> ModelView:
        slots = self._slots.of_model(entry.name)
        holders = self._clients.holders(s.key for s in slots)
        prepared = self.preparations.view(entry)
        states = {slot.state for slot in slots}
        place = self._residency.place(self.preparations.form(entry), states)
        waiting = self._slots.crews.queue(entry.name).waiting
        versions = self._sources.versions(entry)
        return model_view(entry, slots, holders, versions, prepared, place, waiting)

    def workers(self) -> list[WorkerView]:
        """Return the workers that live, the stuck and leaked ones included."""
        return [self._worker_view(worker) for worker in self._slots.workers()]

    def worker(self, uid: str) -> WorkerView:
        """Return one worker. Raises UnknownWorker."""
        return self._worker_view(self._slots.worker(uid))

    def _worker_view(self, worker: Worker) -> WorkerView:
        slot = self._slots.roster.find(worker.key)
        clock = self._services.clock
        return worker_view(
            worker,
            self._clients.holders([worker.key]),
            pinned=slot is not None and slot.pinned,
            wall_minus_monotonic=clock.wall() - clock.monotonic(),
        )

    def books(self) -> Books:
        """Return what of the memory is budgeted and charged, and which models wait for room."""
        return replace(self._slots.books(), kept=self._residency.held_bytes)

    def clients(self) -> list[ClientView]:
        """Return all leases."""
        return [self.client(hold.lease.client) for hold in self._clients.holds()]

    def client(self, client: str) -> ClientView:
        """Return one lease. Raises UnknownClient."""
        hold = self._hold(client)
        slot = self._slots.roster.best(hold.lease.key)
        return client_view(hold, slot, self._clients.expires_in(hold))

    # --- life of the fleet ---

    def restore(
        self,
        entries: Iterable[CatalogueEntry],
        leases: Iterable[Lease],
        wanted: Iterable[SlotKey],
    ) -> list[asyncio.Task[Any]]:
        """Take over from an earlier supervisor; return the loads that this begins."""
        for entry in entries:
            self._catalogue.restore(entry)
        for entry in self._catalogue.entries():
            self._see_to_form(entry)
        for lease in leases:
            self._clients.put(lease)
        return [self._spawn(self._load_again(key)) for key in wanted]

    async def _load_again(self, key: SlotKey) -> None:
        try:
            entry = self._catalogue.get(key.model)
            there = key.version in self._sources.versions(entry)
            slot = await self._slots.get(entry, key.version if there else None, key.client)
            slot.explicit = not key.client
            await slot.ensure_ready()
        except (LoadFailed, UnknownModel) as error:
            logger.error("a model could not be loaded again: %s", error)  # noqa: TRY400
            self._slots.persist(self._store.remove_wanted, key)

    async def stop_all(self, drain: float) -> list[Receipt]:
        """Unload everything, for the end of the supervisor; what was loaded stays wanted."""
        self._slots.close()
        self._clients.close()
        stops = [slot.stop(drain) for slot in self._slots.roster.all()]
        receipts = await asyncio.gather(*stops)
        await self.preparations.close()
        await self._residency.close()
        for task in self._tasks:
            task.cancel()
        return [r for r in receipts if r is not None]

    def hurry(self) -> None:
        """Cut short the draining of a stop that is under way."""
        for worker in self._slots.workers():
            worker.request_stop(0, force=True)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.info("background work failed: %s", error)


def _of_some(error: BaseException, model: str, ready: int, replicas: int) -> BaseException:
    """Return what came in the way of a replica, saying how many others serve."""
    if not isinstance(error, DoesNotFit):
        return error
    text = f"{ready} of {replicas} replicas of model {model} are ready, and serve; {error}"
    return DoesNotFit(text, model=model, plan=error.plan)


async def _receipt_of(workers: list[Worker], receipt: Receipt | None) -> Receipt | None:
    """Return one receipt of all workers of a client's old model, `receipt` being of the last ones.

    Some, or all, may have had to go before there was room for the new model.
    """
    gone = [w for w in workers if w.told_to_stop and (receipt is None or w.state in ENDED)]
    receipts = [found for worker in gone if (found := await worker.until_ended())]
    return Receipt.together(receipts) if receipts else receipt


def _clients_text(clients: tuple[str, ...]) -> str:
    return ("client " if len(clients) == 1 else "clients ") + ", ".join(clients)
