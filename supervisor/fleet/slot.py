"""The place of one version of a model: at most one worker at a time, started when wished for."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import LoadFailed, Stopping, SupervisorError
from ..policy.restart import GiveUp, RestartHistory, after_crash
from ..states import COMING_UP, State
from .wear import Wear, WearWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from ..domain import CatalogueEntry, Failure, Receipt, SlotKey
    from .events import Events, Kind
    from .ledger import Charge
    from .measuring import ModelFiles
    from .ports import Clock
    from .worker import Worker

_OVER: Final = frozenset({State.GONE, State.FAILED, State.STUCK, State.LEAKED})
_GOES: Final = 3  # standings: its worker is about to go, or there is none
_IS_GONE: Final = 4
_LOOK_AGAIN: Final = 1.0  # seconds until a model to go after a request is looked at, while held


class Owner(Protocol):
    """The fleet, as a slot sees it."""

    @property
    def events(self) -> Events:
        """Where to tell what happens."""
        ...

    async def measure(self, slot: Slot) -> None:
        """Look how large the model's files are, which may have been replaced, and what they are."""
        ...

    async def admit(self, slot: Slot) -> None:
        """Wait for room and start the slot's worker. Raises SupervisorError."""
        ...

    def withdraw(self, slot: Slot, error: Exception) -> None:
        """Take the slot out of the queue for room; who waits there gets the error."""
        ...

    def make_worker(self, slot: Slot, charge: Charge) -> Worker:
        """Make a worker for the slot."""
        ...

    def fingerprint(self, slot: Slot) -> object:
        """Return a value that changes when the files of the model do."""
        ...

    def room_beside(self, slot: Slot) -> Charge | None:
        """Return the charge of a second worker of the slot if that fits now, beside all others."""
        ...

    def charges_parked(self, slot: Slot, worker: Worker) -> dict[str, int] | None:
        """Return what an idle worker is charged once it is parked; None: it is to be unloaded."""
        ...

    def slot_changed(self, slot: Slot) -> None:
        """Take note that the slot's worker moved, or that there is none any more."""
        ...

    def is_leased(self, slot: Slot) -> bool:
        """Return whether a live client holds the slot."""
        ...

    def fellows(self, slot: Slot) -> list[Slot]:
        """Return the slots whose workers serve the same, this one included."""
        ...


class Slot:
    """Joins wishes for one worker, restarts it after a crash, and unloads it when idle."""

    def __init__(
        self,
        key: SlotKey,
        entry: CatalogueEntry,
        files: ModelFiles,
        owner: Owner,
        clock: Clock,
        jitter: Callable[[], float],
    ) -> None:
        self.key = key
        self.entry = entry
        self.files = files
        self.pinned = bool(entry.options.pin)
        self.explicit = False  # asked for by `load`; stays when a superseded wish is cleaned up
        self.current: Worker | None = None
        self.successor: Worker | None = None  # takes over from `current` when it is ready
        self.leaving: list[Worker] = []  # serve their last requests after a successor took over
        self.stuck: list[Worker] = []
        self.failure: Failure | None = None
        self.swapping: list[str] = []  # clients about to swap to it; their old models may go for it
        self.queued = 0  # wishes that wait for room
        self.waiting = 0
        self.restarts = 0
        self.idle_ttl: float | None = None  # seconds; None: never idle; 0: after each request
        self.wear = Wear()
        self._owner = owner
        self._clock = clock
        self._jitter = jitter
        self._history = RestartHistory()
        self._wanted = False  # has been ready and was not unloaded since
        self._fingerprint: object = None  # of the files that the last worker was started to read
        self._restart: asyncio.Task[None] | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._wear_watch: WearWatch | None = None

    def renew(self, entry: CatalogueEntry, idle_ttl: float | None) -> None:
        """Take what the catalogue says now; how a worker was loaded stays as it was."""
        self.entry = entry
        self.pinned = bool(entry.options.pin)
        self.idle_ttl = idle_ttl
        if self.current is not None and self.current.state is State.READY:
            self._arm()

    def keep_alive(self, idle_ttl: float | None) -> None:
        """Set the idle time from now on, until the next call, or a load of the model."""
        self.idle_ttl = idle_ttl
        if self.current is not None and self.current.state is State.READY:
            self._arm_idle_timer()

    @property
    def workers(self) -> list[Worker]:
        """Return the workers of the slot that are not stuck."""
        now = [w for w in (self.current, self.successor) if w is not None]
        return [*now, *self.leaving]

    @property
    def parked(self) -> Worker | None:
        """Return its worker if that is parked, and may come back."""
        worker = self.current
        is_parked = worker is not None and worker.state is State.PARKED
        return worker if worker is not None and is_parked and not worker.told_to_stop else None

    @property
    def replicated(self) -> bool:
        """Whether more than one worker is to serve the same."""
        return (self.entry.options.replicas or 1) > 1 and not self.key.client

    @property
    def kept(self) -> bool:
        """Whether its worker is to stay, or to come."""
        return self._wanted or self.explicit

    @property
    def is_coming(self) -> bool:
        """Whether its worker is to stay and serves, or is on its way."""
        return self.kept and self.standing < _GOES

    @property
    def priority(self) -> int:
        """Return its rank in the queue for room."""
        return self.entry.options.priority or 0

    @property
    def state(self) -> str:
        """Return the worker's state, or what there is instead of a worker."""
        if self.current is not None:
            return self.current.state
        if self.queued:
            return "queued"
        if self._restart is not None:
            return "restarting"
        return "failed" if self.failure is not None else "unloaded"

    @property
    def standing(self) -> int:
        """How far it is from serving; what serves is 0."""
        worker = self.current
        if worker is None:
            return 2 if self.queued or self._restart is not None else _IS_GONE
        if worker.serves:
            return 0
        if self.parked is not None:
            return 2
        return 1 if worker.state in COMING_UP and not worker.told_to_stop else _GOES

    @property
    def empty(self) -> bool:
        """Whether nothing is left to remember here."""
        nobody = not self.workers and not self.stuck
        return self.state == "unloaded" and nobody and not self.waiting

    def ensure_ready(self) -> Coroutine[Any, Any, Worker]:
        """Return a ready worker; the wish counts from this call on, before it is awaited.

        ready, and alive              → it
        starting, loading, warming    → the same one, once it is ready; its failure if it fails
        told to stop                  → a new one, once the old one has ended
        found dead                    → the next one
        parked                        → it, once there is room on its GPU and it is back there
        crashed, to be restarted      → the next one
        failed for good               → raises its failure, until the model's files change
        none                          → a new one, once there is room

        Cancelling the last waiter of a worker that nobody else wants stops its load.
        Raises LoadFailed, DoesNotFit or Stopping.
        """
        self.waiting += 1
        return self._until_ready()

    async def _until_ready(self) -> Worker:
        try:
            while True:
                worker = self.current
                if worker is None:
                    await self._next()
                elif worker.serves:
                    return worker
                elif worker.state in COMING_UP and not worker.told_to_stop:
                    await worker.until_up()
                elif self.parked is not None:
                    await self._wake(self.parked)
                else:
                    await worker.until_ended()
        finally:
            self.waiting -= 1
            self._withdraw()

    async def _wake(self, worker: Worker) -> None:
        """Wait for room for a parked worker and let it come back; one of other files goes."""
        await worker.until_parked()
        if self._owner.fingerprint(self) != self._fingerprint:
            worker.request_stop(0)
        elif worker is self.parked:
            await self._queue()

    async def _next(self) -> None:
        if self._restart is not None:
            await asyncio.wait({self._restart})
        elif self.failure is None or self._owner.fingerprint(self) != self._fingerprint:
            await self._queue()
        else:
            message = (
                f"model {self.key.model} has failed: {self.failure.message}. It is tried again "
                "when somebody loads it, or asks for it once its files have changed"
            )
            raise LoadFailed(message, model=self.key.model, failure=self.failure)

    async def _queue(self) -> None:
        self.queued += 1
        try:
            await self._owner.admit(self)
        finally:
            self.queued -= 1

    def start(self, charge: Charge) -> None:
        """Start a worker; its charge has been found to fit. Raises SupervisorError."""
        self.failure = None
        if self.parked is not None:
            self.parked.resume()
        elif self.current is None:  # else a parked one has been told to stop meanwhile
            self.current = self._make_worker(charge)
        self._owner.slot_changed(self)

    def _make_worker(self, charge: Charge) -> Worker:
        self._fingerprint = self._owner.fingerprint(self)
        return self._owner.make_worker(self, charge)

    def _withdraw(self) -> None:
        worker = self.current
        unwanted = not self.waiting and not self._wanted and not self.explicit
        if unwanted and worker is not None and worker.state in COMING_UP:
            self._tell("idle", "nobody waits for this load any more", worker=worker.uid)
            worker.request_stop(0)
        elif self.empty:  # no room was found, so no worker's end will say so
            self._owner.slot_changed(self)

    def on_worker_change(self, worker: Worker) -> None:
        """Take a move of one of this slot's workers. News of an older one is ignored."""
        if worker.state is State.GONE and worker in self.stuck:
            self.stuck.remove(worker)
        if worker is self.successor:
            self._on_successor_change(worker)
        elif worker in self.leaving:
            if worker.state in _OVER:
                self.leaving.remove(worker)
                self._keep_if_lost(worker)
        elif worker is self.current:
            if worker.state is State.READY:
                self._wanted = True
                self._arm()
            elif worker.state is State.PARKED:
                self._disarm()
            elif worker.state is State.FAILED:
                self._on_crash(worker)
            elif worker.state in {State.STUCK, State.LEAKED}:
                self._disarm()
                self.stuck.append(worker)
                self.current = None
                if worker.failure is not None:
                    self._on_crash(worker)
            elif worker.state is State.GONE:
                self._disarm()
                self.current = None
        self._owner.slot_changed(self)

    def _on_crash(self, worker: Worker) -> None:
        assert worker.failure is not None
        self.current = None
        self._disarm()
        if worker.told_to_stop or worker.parked:
            return
        if self.successor is not None and not self.successor.told_to_stop:
            self.current, self.successor = self.successor, None
            return
        self.failure = worker.failure
        if not self._wanted:
            self.explicit = False
            return
        self._history, verdict = after_crash(
            self._history,
            self._clock.monotonic(),
            worker.ready_at,
            worker.failure.cause,
            self._jitter(),
        )
        facts: dict[str, object] = {"cause": worker.failure.cause, "why": verdict.reason}
        if isinstance(verdict, GiveUp):
            self._tell("restart", "a model failed for good", logging.ERROR, **facts)
            self._wanted = self.explicit = False
            return
        facts["restart_in"] = verdict.delay
        self._tell("restart", "a worker crashed", logging.WARNING, **facts)
        self._restart = asyncio.get_running_loop().create_task(self._restart_after(verdict.delay))

    async def _restart_after(self, delay: float) -> None:
        await asyncio.sleep(delay)
        self.restarts += 1
        await self._start_again()

    async def _start_again(self) -> None:
        try:
            await self._owner.measure(self)
            await self._queue()
        except SupervisorError as error:
            self._tell("restart", "a model was not restarted", logging.WARNING, reason=str(error))
            self._wanted = self.explicit = False
            self.failure = None  # it was not at fault this time: the next wish may try again
        finally:
            self._restart = None
        self._owner.slot_changed(self)

    # --- replacing a worker that is worn out ---

    def recycle(self, worker: Worker, reason: str) -> None:
        """Put a new worker in the place of this one, between two requests; none is lost.

        its files are gone  → this one stays, for none could take its place
        both fit at once    → a new one is made ready, takes over, and this one serves its last
        else                → this one serves its last, and requests wait for the new one
        """
        if worker is not self.current or worker.state is not State.READY or self.successor:
            return
        if any(fellow.renews for fellow in self._owner.fellows(self)):
            return  # one after another, so that the others serve; it is found worn again
        if self._fingerprint and not self._owner.fingerprint(self):
            message = "a worn worker stays: its files are gone"
            self._tell("restart", message, logging.WARNING, worker=worker.uid, why=reason)
            return
        charge = self._owner.room_beside(self)
        how = "after it" if charge is None else "beside it"
        self._tell("restart", "recycling a worker", worker=worker.uid, why=reason, next=how)
        if charge is not None:
            self.successor = self._make_worker(charge)
            return
        self._disarm()
        self._restart = asyncio.get_running_loop().create_task(self._start_after(worker))
        worker.request_stop(self.wear.drain)

    @property
    def renews(self) -> bool:
        """Whether another worker is about to take the place of one that served."""
        return self.successor is not None or self._restart is not None

    async def _start_after(self, worker: Worker) -> None:
        await worker.until_ended()
        await self._start_again()

    def _on_successor_change(self, worker: Worker) -> None:
        if worker.state is State.READY and not worker.told_to_stop:
            old, self.current, self.successor = self.current, worker, None
            self._arm()
            if old is not None:
                self.leaving.append(old)
                old.request_stop(self.wear.drain)
        elif worker.state in _OVER:
            self.successor = None
            self._keep_if_lost(worker)

    def _keep_if_lost(self, worker: Worker) -> None:
        if worker.state in {State.STUCK, State.LEAKED}:
            self.stuck.append(worker)

    def _send_off(self, drain: float, *, force: bool = False) -> list[Worker]:
        """Stop the workers beside the current one; return them."""
        others = [worker for worker in self.workers if worker is not self.current]
        for worker in others:
            worker.request_stop(drain if worker in self.leaving else 0, force=force)
        return others

    def forget_failure(self) -> None:
        """Let the next wish try again, whatever failed before."""
        if self._restart is None:
            self.failure = None
            self._history = RestartHistory()

    def unwish(self) -> None:
        """Let no worker come, or come back, unless somebody asks for it."""
        self._wanted = self.explicit = False
        if self._restart is not None:
            self._restart.cancel()
            self._restart = None

    async def stop(self, drain: float, *, force: bool = False) -> Receipt | None:
        """Unload: no restart, no wish to keep it; return the receipt, None without a worker.

        A worker that crashes, or gets stuck, under the stop leaves no receipt either.
        """
        self.unwish()
        self.failure = None
        self._disarm()
        others = self._send_off(drain, force=force)
        receipt = await self._stop_current(drain, force=force)
        for other in others:
            await other.until_ended()
        return receipt

    async def _stop_current(self, drain: float, *, force: bool) -> Receipt | None:
        worker = self.current
        if worker is None:
            name = self.key.model
            gone = Stopping(f"model {name} was unloaded while it waited for room", model=name)
            self._owner.withdraw(self, gone)
            self._owner.slot_changed(self)
            return None
        worker.request_stop(drain, force=force)
        return await worker.until_ended()

    def evict(self, reason: str) -> None:
        """Unload an idle worker to make room for another model."""
        worker = self.current.uid if self.current else None
        self._tell("eviction", "evicting", worker=worker, reason=reason)
        self._go()

    def _tell(self, kind: Kind, message: str, level: int = logging.INFO, **facts: object) -> None:
        self._owner.events.tell(kind, message, level, model=self.key.model, **facts)

    def _go(self) -> None:
        self.unwish()
        self._send_off(0)
        if self.current is not None:
            self.current.request_stop(0)
        else:
            self._owner.slot_changed(self)

    # --- idleness and wear ---

    def _disarm(self) -> None:
        if self._wear_watch is not None:
            self._wear_watch.close()
            self._wear_watch = None
        self._disarm_idle_timer()

    def _arm(self) -> None:
        self._disarm()
        self._arm_idle_timer()
        if self.current is not None and (self.wear.requests or self.wear.memory):
            self._wear_watch = WearWatch(self.current, self.wear, self.recycle)

    def _disarm_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _arm_idle_timer(self) -> None:
        self._disarm_idle_timer()
        if self.idle_ttl:
            self._look_in(self.idle_ttl)
        elif self.idle_ttl is not None and self.current is not None and self.current.traffic.total:
            self._look_in(_LOOK_AGAIN)  # the end of a request comes first, where one is under way

    def _look_in(self, seconds: float) -> None:
        self._disarm_idle_timer()
        self._idle_timer = asyncio.get_running_loop().call_later(seconds, self._on_idle)

    def on_requests_ended(self) -> None:
        """Unload if the last request in flight, which ended just now, was to be the last."""
        if self.idle_ttl == 0:
            self._on_idle()

    def _on_idle(self) -> None:
        """Unload if the time since the end of the last request is up; else look again later.

        All that serve the same are idle together, and go together.
        """
        worker, ttl = self.current, self.idle_ttl
        if worker is None or worker.state is not State.READY or ttl is None:
            return
        fellows = self._owner.fellows(self)
        traffic = [fellow.current.traffic for fellow in fellows if fellow.current]
        left = ttl - (self._clock.monotonic() - max(t.last_end for t in traffic))
        used = any(t.in_flight for t in traffic) or any(fellow.waiting for fellow in fellows)
        if left > 0 or used or self.pinned or self._owner.is_leased(self):
            self._look_in(max(left, ttl / 10, 0.01) if ttl else _LOOK_AGAIN)
            return
        for fellow in fellows:
            fellow.unwish()
        parked = [fellow for fellow in fellows if fellow._park()]
        what = "parking" if self in parked else "unloading"
        self._tell("idle", f"{what} an idle model", worker=worker.uid)
        for fellow in fellows:
            if fellow not in parked:
                fellow._go()

    def _park(self) -> bool:
        """Park the idle worker where it may be; return whether."""
        worker = self.current
        is_idle = worker is not None and worker.state is State.READY
        charges = self._owner.charges_parked(self, worker) if worker and is_idle else None
        if worker is None or charges is None:
            return False
        self._send_off(0)
        worker.park(charges)
        return True
