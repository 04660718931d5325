"""One actor per worker: the only code that moves a worker from state to state."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from ..domain import Failure, Receipt
from ..errors import LaunchFailed, LoadFailed, ParkingFailed, Stopping
from ..policy.causes import explain_exit
from ..states import COMING_UP, State, check_move
from .gpu_memory import GpuMemory
from .stop import Stop, about
from .traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelsup.worker.contract import LaunchSpec, Signature, StatusMessage

    from ..domain import Exit, Outcome, SlotKey
    from .events import Kind
    from .ports import Handle, Reclaimed, Upstream
    from .services import Services

logger = logging.getLogger(__name__)

LOG_LINES_OF_A_FAILURE: Final = 20
DEATH_NOTICE: Final = 1.0  # seconds until the end of a process that takes no connection is known
EXPLANATION: Final = 2 * DEATH_NOTICE  # seconds until it is known why one has failed
_BAD: Final = frozenset({State.FAILED, State.STUCK, State.LEAKED})


class Worker:
    """One worker, from the wish for it to the receipt of its end."""

    def __init__(
        self,
        key: SlotKey,
        spec: LaunchSpec,
        services: Services,
        on_change: Callable[[Worker], None],
        on_end: Callable[[], None],
        on_device_open: Callable[[Worker], None] = lambda worker: worker.go_on(),
        restarts: int = 0,
    ) -> None:
        self.key = key
        self.uid = spec.uid
        self.spec = spec
        self.state = State.STARTING
        self.since = services.clock.wall()
        self.ready_at: float | None = None  # monotonic
        self.restarts = restarts
        self.signatures: tuple[Signature, ...] = ()
        self.seconds: dict[str, float] = {}
        self.charges: Mapping[str, int] = {}  # bytes by resource, while it holds memory
        self.estimated = False  # nobody has measured its model yet
        self.memory: dict[str, int] = {}  # private bytes by stage of the load
        self.framework = ""
        self.preparable = False  # its model may have a prepared form
        self.from_prepared = False
        self.prepared_error = ""  # why the prepared form that it was given was not loaded
        self.failure: Failure | None = None
        self.handle: Handle | None = None
        self._services = services
        self._on_change = on_change
        self._on_end = on_end  # of a request
        self._on_device_open = on_device_open
        self._created = services.clock.monotonic()
        self.traffic = Traffic(self._created)
        self.gpu = GpuMemory(services.devices, spec.device, lambda: self.charges)
        self._told: Failure | None = None
        self._lost = False  # it is dead, or takes no connections and is no use any more
        self._home: Mapping[str, int] | None = None  # its charges when it is not parked
        self._moving: asyncio.Task[None] | None = None  # to host memory, or back
        self._deadline = self._created + services.timeouts.load
        self._launching: asyncio.Timeout | None = None
        self._stop: Stop | None = None
        self._nudge = asyncio.Event()  # a message, a wish to stop, or a verdict has come
        self._up = asyncio.Event()  # ready, or never to be
        self._explained = asyncio.Event()  # why it failed is known
        self._ended = asyncio.Event()
        self._receipt: Receipt | None = None
        self._task = asyncio.get_running_loop().create_task(self._live(), name=f"worker {self.uid}")

    # --- what others may ask ---

    @property
    def upstream(self) -> Upstream:
        """The way to the process. Only for a worker that has been launched."""
        assert self.handle is not None
        return self.handle.upstream

    def begin(self) -> None:
        """Count a request in. The caller saw the state READY with no await in between."""
        self.traffic.begin()

    def end(self, completed: bool) -> None:
        """Count a request out; `completed` says that the whole answer was passed on."""
        self.traffic.end(self._services.clock.monotonic(), completed)
        handle = self.handle
        if not completed and handle is not None and (handle.upstream.refused or handle.ended):
            self._lost = True
            self._nudge.set()
        self._on_end()

    @property
    def serves(self) -> bool:
        """Whether it takes requests: it is ready, and not found dead by one of them."""
        return self.state is State.READY and not self._lost

    def go_on(self) -> None:
        """Let the process load, which stands still now that it has opened its GPU."""
        if self.handle is not None:
            self.handle.go_on()

    @property
    def parked(self) -> bool:
        """Whether it is parked, on its way there, or on its way back."""
        return self._home is not None

    @property
    def way_back(self) -> dict[str, int]:
        """What a parked worker needs to serve again, in bytes by resource: room on its GPU."""
        assert self._home is not None
        return {name: size for name, size in self._home.items() if name == self.spec.device}

    def park(self, charges: Mapping[str, int]) -> None:
        """Move its GPU memory to the host, and have it charged so. Only for one that is idle.

        Where that fails it is stopped.
        """
        assert self.handle is not None
        self._home, self.charges = self.charges, {**self.charges, **charges}
        if self.spec.device is not None:  # until it is off
            self.charges = {**self.charges, **self.way_back}
        self._move(State.PARKED)
        moving = self._park(self.handle.pid, charges)
        self._moving = asyncio.get_running_loop().create_task(moving)

    async def _park(self, pid: int, charges: Mapping[str, int]) -> None:
        try:
            await self._services.parking.park(pid)
        except ParkingFailed as error:
            self._tell("alarm", "a worker was not parked", logging.WARNING, reason=str(error))
            self.request_stop(0)
            return
        self.charges = charges
        self._on_change(self)

    async def until_parked(self) -> None:
        """Wait until it is parked, or is to stop."""
        if self._moving is not None:
            await asyncio.wait({self._moving})

    def resume(self) -> None:
        """Move its GPU memory back, for which room has been found. It fails where that does."""
        assert self.handle is not None
        self._up.clear()
        self.charges = {**self.charges, **self.way_back}
        self._deadline = self._services.clock.monotonic() + self._services.timeouts.load
        self._move(State.WARMING)
        moving = self._resume(self.handle.pid)
        self._moving = asyncio.get_running_loop().create_task(moving)

    async def _resume(self, pid: int) -> None:
        try:
            await self._services.parking.resume(pid)
        except ParkingFailed as error:
            self.condemn(Failure("unknown", f"it could not be brought back to its GPU: {error}"))
            return
        assert self._home is not None
        self.charges, self._home = self._home, None
        self._move(State.READY)

    @property
    def told_to_stop(self) -> bool:
        """Whether its end is wished for."""
        return self._stop is not None

    def request_stop(self, drain: float, *, force: bool = False) -> None:
        """Wish for the end, after at most `drain` seconds of draining; a shorter wish wins."""
        if self._stop is None:
            now, traffic = self._services.clock.monotonic(), self.traffic
            self._stop = Stop(drain, force, now, traffic.completed, traffic.in_flight)
        else:
            self._stop.hasten(drain, force=force)
        if self.state is State.READY:
            self._move(State.DRAINING)  # at once, so that no request is sent to it any more
        self._interrupt()

    def condemn(self, failure: Failure) -> None:
        """End it at once as failed, for a reason that the supervisor saw from outside."""
        self._told = self._told or failure
        self._interrupt()
        if self.handle is not None:
            self.handle.kill()

    def _interrupt(self) -> None:
        self._nudge.set()
        if self._launching is not None and not self._launching.expired():
            self._launching.reschedule(0)  # in the past: give up now

    async def until_up(self) -> None:
        """Wait until it is ready. Raises LoadFailed with the cause when it ends before."""
        await self._up.wait()
        if self.ready_at is None:
            raise self.load_error()

    async def until_ended(self) -> Receipt | None:
        """Wait for the end, or for STUCK; return the receipt of a stop that was asked for."""
        await self._ended.wait()
        return self._receipt

    async def until_explained(self) -> Failure | None:
        """Return why it failed, waiting for EXPLANATION s at most; None if it did not fail."""
        if self._stop is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._explained.wait(), EXPLANATION)
        return self.failure

    def load_error(self) -> LoadFailed | Stopping:
        """Return the error for who waited in vain for this worker."""
        name = self.key.model
        if self.failure is None:
            return Stopping(f"model {name} was unloaded while it was loading", model=name)
        return LoadFailed(
            f"model {name} could not be loaded: {self.failure.message}",
            model=name,
            failure=self.failure,
        )

    # --- the actor ---

    def _move(self, state: State) -> None:
        check_move(self.state, state)
        self.state = state
        self.since = self._services.clock.wall()
        if state is State.READY:
            self.ready_at = self._services.clock.monotonic()
            self.gpu.ready = True
        self._tell_move()
        self._on_change(self)
        if state is State.READY or state not in COMING_UP:
            self._up.set()

    def _tell(self, kind: Kind, message: str, level: int, **facts: object) -> None:
        about = {"model": self.key.model, "worker": self.uid}
        self._services.events.tell(kind, message, level, **about, **facts)

    def _tell_move(self) -> None:
        facts: dict[str, object] = {"state": str(self.state)}
        if self.state is State.READY:
            facts["seconds"] = round(self.seconds["total"], 3)
        elif self.state is State.GONE and self._receipt is not None:
            facts |= about(self._receipt)
        elif self.failure is not None:
            facts |= {"cause": self.failure.cause, "reason": self.failure.message}
        level = logging.INFO if self.state in {State.READY, State.GONE} else logging.DEBUG
        level = logging.WARNING if self.state in _BAD else level
        self._tell("worker", f"worker {self.state}", level, **facts)

    def _on_status(self, message: StatusMessage) -> None:
        self.gpu.may_be_touched = True
        if self.state not in COMING_UP:
            return
        self.seconds.update(message.seconds)
        self.memory = message.memory
        self.framework = message.framework
        if message.device_open:
            self._on_device_open(self)
        match message.stage:
            case "warming":
                self._move(State.WARMING)
            case "ready":
                self.signatures = message.signatures
                self.preparable = message.preparable
                self.from_prepared = message.from_prepared
                self.prepared_error = message.prepared_error
                self.seconds["total"] = self._services.clock.monotonic() - self._created
                self._move(State.READY)
            case "failed":
                self._told = Failure(message.cause or "unknown", message.message)
        self._nudge.set()

    async def _live(self) -> None:
        self.gpu.begin()
        try:
            self.handle = await self._launch()
        except TimeoutError:
            self._end_unlaunched()
            return
        except LaunchFailed as error:
            self._fail(Failure(error.cause, str(error)))
            return
        except Exception as error:
            logger.exception("a worker could not be started", extra={"worker": self.uid})
            self._fail(Failure("unknown", f"the worker could not be started: {error}"))
            return
        self.gpu.pid = self.handle.pid
        self.seconds["fork"] = self._services.clock.monotonic() - self._created
        self._move(State.LOADING)
        exited = asyncio.ensure_future(self.handle.exited())
        try:
            await self._serve(exited)
        except Exception:
            logger.exception("a worker's actor failed", extra={"worker": self.uid})
            self.handle.kill()
            self._fail(Failure("unknown", "the supervisor made a mistake with this worker"))
            raise

    async def _launch(self) -> Handle:
        """Start the process. Raises TimeoutError when its time is up, or its end is wished for."""
        if self._stop is not None or self._told is not None:
            raise TimeoutError
        try:
            async with asyncio.timeout(self._services.timeouts.load) as self._launching:
                return await self._services.launcher.spawn(self.spec, self._on_status)
        finally:
            self._launching = None

    def _end_unlaunched(self) -> None:
        if self._stop is None:
            late = Failure("timeout", f"not started within {self._services.timeouts.load:g} s")
            self._fail(self._told or late)
            return
        outcome: Outcome = "forced" if self._stop.force else "drained"
        self._receipt = Receipt(self.key.model, self.uid, outcome)
        self._move(State.STOPPING)
        self._ended.set()
        self._move(State.GONE)

    async def _serve(self, exited: asyncio.Future[Exit]) -> None:
        """Loading and ready, until the end:

        exited by itself            → failed, with the cause
        told to stop                → draining → stopping → gone
        alive, but does not listen  → killed, failed: hung
        not ready within its time   → killed, failed: timeout
        """
        while not exited.done() and self._stop is None and self._told is None:
            loading = self.state in COMING_UP
            left = self._deadline - self._services.clock.monotonic() if loading else None
            if left is not None and left <= 0:
                message = f"not ready within {self._services.timeouts.load:g} s"
                self.condemn(Failure("timeout", message))
                break
            await self._wait(exited, left)
            if self._lost and not await _within(exited, DEATH_NOTICE):
                self.condemn(Failure("hung", "it takes no connections any more"))
        if self._moving is not None:
            self._moving.cancel()
        if self._stop is not None:
            await self._come_down(exited, self._stop)
        else:
            await self._crash(exited)

    async def _wait(self, exited: asyncio.Future[Exit], seconds: float | None) -> None:
        """Wait for the exit, a nudge or the end of the time, whichever comes first."""
        self._nudge.clear()
        nudged = asyncio.ensure_future(self._nudge.wait())
        waiting: set[asyncio.Future[Any]] = {exited, nudged}
        await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        nudged.cancel()

    async def _crash(self, exited: asyncio.Future[Exit]) -> None:
        assert self.handle is not None
        doing = "loading" if self.state in COMING_UP else "serving"
        if not await _within(exited, self._services.timeouts.kill):
            self.handle.kill()  # it said that it failed, or was condemned, and yet it is there
            if not await _within(exited, self._services.timeouts.kill):
                await self._be_stuck(exited)
                return
        self.handle.dispose()
        end = exited.result()
        log = self._services.logs.last_lines(self.uid, LOG_LINES_OF_A_FAILURE)
        failure = explain_exit(end, doing, self._told, log)
        self._explain(failure)
        if self.spec.device is not None:
            self._move(State.STOPPING)  # at once: its GPU memory may take a while to be back
        gpu = await self.gpu.reclaimed()
        if self._stop is not None:
            self._receipt = Receipt(self.key.model, self.uid, "crashed")
        if gpu is not None and gpu.verdict == "held":
            self._ended.set()
            await self._be_gone(gpu)
        else:
            self._fail(failure)

    def _explain(self, failure: Failure) -> None:
        self.failure = replace(failure, at=self._services.clock.wall())
        self._explained.set()

    def _fail(self, failure: Failure) -> None:
        self._explain(failure)
        self._ended.set()
        self._move(State.FAILED)

    async def _come_down(self, exited: asyncio.Future[Exit], stop: Stop) -> None:
        """Drain, SIGTERM, SIGKILL, each for its time; then STUCK. Ends within the sum of them."""
        assert self.handle is not None
        clock = self._services.clock.monotonic
        if self.state is State.DRAINING:
            await self._drain(exited, stop)
        memory = self.handle.memory()
        stop.freed = memory.uss if memory else 0
        if not exited.done():
            await self.gpu.look()
        stop.drained = clock()
        stop.crashed = exited.done()
        stop.aborted = self.traffic.in_flight
        self._move(State.STOPPING)
        if stop.aborted:
            self.handle.upstream.close()
        if self.parked:  # it would stand still at its GPU before it ends in order
            self.handle.kill()
        else:
            self.handle.terminate()
        if not await _within(exited, self._services.timeouts.term):
            stop.killed = True
            self.handle.kill()
            if not await _within(exited, self._services.timeouts.kill):
                await self._be_stuck(exited)
                return
        stop.exited, stop.end = clock(), exited.result()
        self.handle.dispose()
        stop.gpu = await self.gpu.reclaimed()
        stop.back = clock()
        self._receipt = stop.receipt(
            self.key.model, self.uid, self.spec.device, self.traffic.completed
        )
        self._ended.set()
        await self._be_gone(stop.gpu)

    async def _drain(self, exited: asyncio.Future[Exit], stop: Stop) -> None:
        idle = asyncio.ensure_future(self.traffic.idle.wait())
        while not idle.done() and not exited.done():
            left = stop.started + stop.drain - self._services.clock.monotonic()
            if left <= 0 or self._told is not None:
                break
            self._nudge.clear()
            nudged = asyncio.ensure_future(self._nudge.wait())
            waiting: set[asyncio.Future[Any]] = {idle, exited, nudged}
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            nudged.cancel()
        idle.cancel()

    async def _be_gone(self, gpu: Reclaimed | None) -> None:
        """Where its GPU memory is not back, stay charged and watch until it is; then be gone."""
        if gpu is not None and gpu.verdict == "held":
            message = "a worker has ended, but its GPU memory is not back"
            facts = {"gpu": self.spec.device, "reason": gpu.reason}
            self._tell("alarm", message, logging.ERROR, **facts)
            self._move(State.LEAKED)
            await self.gpu.until_back()
        self._move(State.GONE)

    async def _be_stuck(self, exited: asyncio.Future[Exit]) -> None:
        """Give up waiting, but not watching."""
        assert self.handle is not None
        self._tell("alarm", "a worker does not exit even after SIGKILL", logging.ERROR)
        self._ended.set()
        self._move(State.STUCK)
        await exited
        self.handle.dispose()
        await self._be_gone(await self.gpu.reclaimed())


async def _within(exited: asyncio.Future[Exit], seconds: float) -> bool:
    """Return whether the exit came within the time."""
    await asyncio.wait({exited}, timeout=seconds)
    return exited.done()
