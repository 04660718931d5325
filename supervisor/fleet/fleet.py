"""All workers, slots and leases; the one place that the outside asks for models."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..domain import Failure, Lease, Receipt
from ..errors import (
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
from ..states import State
from .catalogue import Catalogue
from .clients import Clients, Swap
from .contexts import Contexts
from .entries import check_entry
from .ledger import Ledger, asked_cap
from .residency import Residency
from .show import client_view, model_view, worker_view
from .slots import Slots
from .views import Loaded, Released, Swapped

if TYPE_CHECKING:
    import random
    from collections.abc import Coroutine, Iterable, Iterator

    from ..domain import CatalogueEntry, Options, Outcome, SlotKey
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
        if not self._defaults.autoload and not self._slots.loaded(model):
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
        slot = self._slots.find(worker.key)
        if slot is not None:
            slot.keep_alive(None if seconds < 0 else seconds)

    # --- catalogue ---

    def put_model(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> tuple[ModelView, bool]:
        """Add or change a model without loading it; return it and whether it is new.

        Raises Invalid, UnknownModel, or SourceConflict while another source is loaded.
        """
        known = self._catalogue.find(name)
        entry = self._catalogue.amended(name, source, runtime, options)
        check_entry(entry, self._services.devices, self._defaults.max_batch_size)
        if known is not None:
            loaded = self._slots.loaded(name)
            if loaded and (known.source, known.runtime) != (entry.source, entry.runtime):
                raise SourceConflict(
                    f"model {name} is loaded from {known.source or known.runtime}; "
                    "unload it first, or choose another name",
                    model=name,
                )
            for slot in loaded:
                self._slots.renew(slot, entry)
        if entry != known:
            self._catalogue.put(entry)
            self._see_to_form(entry)
            self._residency.poke()
        return self.model(name), known is None

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
        if self._slots.loaded(name):
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

        The load goes on if the caller stops waiting. Raises SupervisorError.
        """
        started = self._services.clock.monotonic()
        entry = self._said(name, source, runtime, options)
        slot = await self._slots.get(entry, None)
        already = slot.current is not None and slot.current.state is State.READY
        if already:
            self._slots.renew(slot, entry)  # what a request said of its idle time ends here
        slot.explicit = True
        slot.forget_failure()
        ready = self._spawn(slot.ensure_ready())
        done, _ = await asyncio.wait({ready}, timeout=wait)
        if not done:
            return None
        worker = ready.result()
        return self._loaded(slot, worker, already, started)

    def _loaded(self, slot: Slot, worker: Worker, already: bool, started: float) -> Loaded:
        memory = worker.handle.memory() if worker.handle else None
        seconds = dict(worker.seconds)
        seconds["total"] = self._services.clock.monotonic() - started
        return Loaded(
            model=slot.key.model,
            version=slot.key.version,
            worker=worker.uid,
            already_loaded=already,
            seconds=seconds,
            host_bytes=memory.uss if memory else 0,
            warnings=self._warnings(slot, worker),
        )

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
        slots = self._slots.loaded(name)
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
        receipts = await asyncio.gather(*(self._stop(slot, drain, force=force) for slot in slots))
        return [r for r in receipts if r is not None] or [Receipt(name, "", outcome)]

    def _drain_time(self, timeout: float | None) -> float:
        return self._services.timeouts.drain if timeout is None else timeout

    async def _stop(self, slot: Slot, drain: float, *, force: bool = False) -> Receipt | None:
        worker, name = slot.current, slot.key.model
        unloaded = Stopping(f"model {name} was unloaded while the request waited", model=name)
        self._slots.crews.of(slot).dismiss(unloaded)
        receipt = await slot.stop(drain, force=force)
        if receipt is None and worker is not None and worker.state is State.STUCK:
            raise TimedOut(
                f"worker {worker.uid} of model {slot.key.model} does not exit even after SIGKILL; "
                "it stays listed, and its memory in use, until it does",
                model=slot.key.model,
            )
        return receipt

    async def plan(self, name: str) -> Plan:
        """Return what a load would do now, without doing it. Raises UnknownModel, LoadFailed."""
        slot = await self._slots.get(self._catalogue.get(name), None)
        try:
            return self._slots.admission.plan(slot)
        finally:
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
                yield entry.options.keep, form, bool(self._slots.loaded(entry.name))

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
        old = self._worker_of(client)
        worker = await self._ready_for_swap(client, slot, wait)
        ready = self._services.clock.monotonic()
        previous = self._take_lease(client, slot.key, ttl)
        receipt, kept = None, None
        if previous is not None:
            receipt, kept = await self._let_go(previous.key, unless=slot.key)
            if receipt is None and kept is None and old is not None and old.told_to_stop:
                receipt = await old.until_ended()  # it had to go before there was room
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
            await self._let_go(slot.key)
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

    def _worker_of(self, client: str) -> Worker | None:
        hold = self._clients.hold(client)
        slot = self._slots.find(hold.lease.key) if hold else None
        return slot.current if slot else None

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
        slot = self._slots.find(key)
        if key == unless:
            return None, "it is the same model"
        if slot is None:
            return None, None
        if slot.pinned:
            return None, f"model {key.model} is pinned"
        if holders := self._clients.holders([key]):
            return None, f"model {key.model} is held by {_clients_text(holders)}"
        if slot.waiting or self._slots.crews.of(slot).waiting:
            return None, f"requests wait for model {key.model}"
        return await self._stop(slot, self._services.timeouts.drain), None

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
        is_ready = any(slot.state == State.READY for slot in slots)
        place = self._residency.place(self.preparations.form(entry), loaded=is_ready)
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
        slot = self._slots.find(worker.key)
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
        slot = self._slots.find(hold.lease.key)
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
        stops = [slot.stop(drain) for slot in self._slots.all()]
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


def _clients_text(clients: tuple[str, ...]) -> str:
    return ("client " if len(clients) == 1 else "clients ") + ", ".join(clients)
