"""One actor per worker: the only code that moves a worker from state to state."""

from __future__ import annotations

import asyncio
import logging
import signal
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from ..domain import Exit, Failure, Receipt
from ..errors import LaunchFailed, LoadFailed, Stopping
from ..policy.causes import explain_exit
from ..states import COMING_UP, State, check_move

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from modelsup.worker.contract import LaunchSpec, Signature, StatusMessage

    from ..domain import Outcome, SlotKey
    from .events import Events, Kind
    from .ports import Clock, Devices, Handle, Hold, Launcher, Logs, Reclaimed, Upstream

logger = logging.getLogger(__name__)

LOG_LINES_OF_A_FAILURE: Final = 20
DEATH_NOTICE: Final = 1.0  # seconds until the end of a process that takes no connection is known
LEAK_PAUSE: Final = 0.1  # seconds between two looks for memory that did not come back
_BAD: Final = frozenset({State.FAILED, State.STUCK, State.LEAKED})


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Every bound on a worker's life, in seconds."""

    load: float = 600.0
    drain: float = 30.0
    term: float = 10.0
    kill: float = 5.0


@dataclass(frozen=True, slots=True)
class Services:
    """What workers need of the outside."""

    launcher: Launcher
    logs: Logs
    devices: Devices
    clock: Clock
    timeouts: Timeouts
    temp_dir: Callable[[str], str]  # worker id → its temporary folder
    events: Events


@dataclass(slots=True)
class _Stop:
    """A wish to stop: how long to drain, whether it was forced, and what there was at the time."""

    drain: float
    force: bool
    started: float  # monotonic
    completed: int  # requests, before
    running: int  # requests, in flight


@dataclass(slots=True)
class _Times:
    """Monotonic seconds of the steps of a stop."""

    started: float
    drained: float = 0.0
    exited: float = 0.0
    back: float = 0.0


@dataclass(slots=True)
class _Traffic:
    """Requests of a worker. Times are monotonic seconds."""

    in_flight: int = 0
    total: int = 0
    completed: int = 0
    last_end: float = 0.0
    last_answer: float = 0.0
    idle: asyncio.Event = field(default_factory=asyncio.Event)


class Worker:
    """One worker, from the wish for it to the receipt of its end."""

    def __init__(
        self,
        key: SlotKey,
        spec: LaunchSpec,
        services: Services,
        on_change: Callable[[Worker], None],
        on_idle: Callable[[], None],
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
        self.gpu_bytes: int | None = None  # as the driver told when it was ready
        self.failure: Failure | None = None
        self.handle: Handle | None = None
        self.traffic = _Traffic()
        self.traffic.idle.set()
        self._services = services
        self._on_change = on_change
        self._on_idle = on_idle
        self._hold: Hold | None = None  # of its GPU, once it is ready
        self._loads = False  # its runtime has begun to load, and may have touched the GPU
        self._created = services.clock.monotonic()
        self.traffic.last_end = self.traffic.last_answer = self._created
        self._told: Failure | None = None
        self._refused = False  # it took no connection, so it is dead, or no use any more
        self._launching: asyncio.Timeout | None = None
        self._stop: _Stop | None = None
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
        self.traffic.in_flight += 1
        self.traffic.total += 1
        self.traffic.idle.clear()

    def end(self, completed: bool) -> None:
        """Count a request out; `completed` says that the whole answer was passed on."""
        traffic = self.traffic
        traffic.in_flight -= 1
        traffic.last_end = self._services.clock.monotonic()
        if completed:
            traffic.completed += 1
            traffic.last_answer = traffic.last_end
        elif self.handle is not None and self.handle.upstream.refused:
            self._refused = True
            self._nudge.set()
        if traffic.in_flight == 0:
            traffic.idle.set()
            self._on_idle()

    @property
    def told_to_stop(self) -> bool:
        """Whether its end is wished for."""
        return self._stop is not None

    def request_stop(self, drain: float, *, force: bool = False) -> None:
        """Wish for the end, after at most `drain` seconds of draining; a shorter wish wins."""
        if self._stop is None:
            now, traffic = self._services.clock.monotonic(), self.traffic
            self._stop = _Stop(drain, force, now, traffic.completed, traffic.in_flight)
        else:
            self._stop.drain = min(self._stop.drain, drain)
            self._stop.force = self._stop.force or force
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
        """Return why it failed, waiting for DEATH_NOTICE s at most; None if it did not fail."""
        if self._stop is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._explained.wait(), DEATH_NOTICE)
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
            facts |= _about_receipt(self._receipt)
        elif self.failure is not None:
            facts |= {"cause": self.failure.cause, "reason": self.failure.message}
        level = logging.INFO if self.state in {State.READY, State.GONE} else logging.DEBUG
        level = logging.WARNING if self.state in _BAD else level
        self._tell("worker", f"worker {self.state}", level, **facts)

    def _on_status(self, message: StatusMessage) -> None:
        self._loads = True
        if self.state not in COMING_UP:
            return
        self.seconds.update(message.seconds)
        self.memory = message.memory
        self.framework = message.framework
        match message.stage:
            case "warming":
                self._move(State.WARMING)
            case "ready":
                self.signatures = message.signatures
                self.seconds["total"] = self._services.clock.monotonic() - self._created
                self._move(State.READY)
            case "failed":
                self._told = Failure(message.cause or "unknown", message.message)
        self._nudge.set()

    async def _live(self) -> None:
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
        deadline = self._created + self._services.timeouts.load
        while not exited.done() and self._stop is None and self._told is None:
            loading = self.state in COMING_UP
            left = deadline - self._services.clock.monotonic() if loading else None
            if left is not None and left <= 0:
                message = f"not ready within {self._services.timeouts.load:g} s"
                self.condemn(Failure("timeout", message))
                break
            await self._wait(exited, left)
            if self._refused and not await _within(exited, DEATH_NOTICE):
                self.condemn(Failure("hung", "it takes no connections any more"))
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
                await self._be_stuck(exited, self._hold)
                return
        self.handle.dispose()
        end = exited.result()
        log = self._services.logs.last_lines(self.uid, LOG_LINES_OF_A_FAILURE)
        failure = explain_exit(end, doing, self._told, log)
        self._explain(failure)
        if self.spec.device is not None:
            self._move(State.STOPPING)  # at once: its GPU memory may take a while to be back
        hold, gpu = await self._reclaimed(self._hold)
        if self._stop is not None:
            self._receipt = Receipt(self.key.model, self.uid, "crashed")
        if hold is not None and gpu is not None and gpu.verdict == "held":
            self._ended.set()
            await self._be_leaked(hold, gpu.reason)
        else:
            self._fail(failure)

    def _explain(self, failure: Failure) -> None:
        self.failure = replace(failure, at=self._services.clock.wall())
        self._explained.set()

    def _fail(self, failure: Failure) -> None:
        self._explain(failure)
        self._ended.set()
        self._move(State.FAILED)

    async def _come_down(self, exited: asyncio.Future[Exit], stop: _Stop) -> None:
        """Drain, SIGTERM, SIGKILL, each for its time; then STUCK. Ends within the sum of them."""
        assert self.handle is not None
        clock = self._services.clock.monotonic
        times = _Times(stop.started)
        if self.state is State.DRAINING:
            await self._drain(exited, stop, times.started)
        freed = self._memory_now()
        hold = self._hold if exited.done() else await self._holds_now()
        times.drained = clock()
        crashed = exited.done()
        aborted = self.traffic.in_flight
        self._move(State.STOPPING)
        if aborted:
            self.handle.upstream.close()
        self.handle.terminate()
        killed = False
        if not await _within(exited, self._services.timeouts.term):
            killed = True
            self.handle.kill()
            if not await _within(exited, self._services.timeouts.kill):
                await self._be_stuck(exited, hold)
                return
        times.exited = clock()
        self.handle.dispose()
        hold, gpu = await self._reclaimed(hold)
        times.back = clock()
        completed = self.traffic.completed - stop.completed
        outcome: Outcome = "drained"
        # Its connections end before its process does: a crash may look like the end of a drain.
        if crashed or not (killed or _is_orderly(exited.result())):
            outcome = "crashed"
            aborted = stop.running - completed
        elif killed or aborted or stop.force:
            outcome = "forced"
        self._receipt = Receipt(
            model=self.key.model,
            worker=self.uid,
            outcome=outcome,
            in_flight_completed=completed,
            in_flight_aborted=aborted,
            freed_host=freed,
            freed_gpu={self.spec.device: gpu.freed} if gpu and self.spec.device else {},
            verified=gpu is None or gpu.verdict == "back",
            drain=times.drained - times.started,
            exit=times.exited - times.drained,
            memory_back=times.back - times.exited,
            total=times.back - times.started,
        )
        self._ended.set()
        if hold is not None and gpu is not None and gpu.verdict == "held":
            await self._be_leaked(hold, gpu.reason)
        else:
            self._move(State.GONE)

    async def _drain(self, exited: asyncio.Future[Exit], stop: _Stop, started: float) -> None:
        idle = asyncio.ensure_future(self.traffic.idle.wait())
        while not idle.done() and not exited.done():
            left = started + stop.drain - self._services.clock.monotonic()
            if left <= 0 or self._told is not None:
                break
            self._nudge.clear()
            nudged = asyncio.ensure_future(self._nudge.wait())
            waiting: set[asyncio.Future[Any]] = {idle, exited, nudged}
            await asyncio.wait(waiting, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            nudged.cancel()
        idle.cancel()

    async def measure_gpu(self) -> None:
        """Take note of what it holds of its GPU, for the day when it ends without a warning."""
        self._hold = await self._holds_now()
        self.gpu_bytes = self._hold.bytes if self._hold else None

    async def _holds_now(self) -> Hold | None:
        if self.spec.device is None or self.handle is None:
            return None
        return await self._services.devices.hold(self.spec.device, self.handle.pid)

    def _expected(self) -> int | None:
        """Return the bytes that it is thought to hold of its GPU, for where the driver tells none.

        Before its load none. In its load that is not known: it may not have come to the GPU yet,
        and must not count as leaked because the GPU's use did not fall. Once it is ready, what it
        is charged.
        """
        if not self._loads:
            return 0
        if self.ready_at is None:
            return None
        charged = self.charges.get(self.spec.device) if self.spec.device else None
        return charged if self.gpu_bytes is None else self.gpu_bytes

    async def _reclaimed(self, hold: Hold | None) -> tuple[Hold | None, Reclaimed | None]:
        """Wait until the GPU memory of the ended process is back.

        `hold` is what it held while it lived, if that was read. Returns what the memory was
        compared with, and what became of it; neither on the CPU, whose memory is back at the exit.
        """
        expected = self._expected()
        if hold is None:  # of a process that has ended, only what is still listed can be told
            hold, expected = await self._holds_now(), 0
        if hold is None:
            return None, None
        return hold, await self._services.devices.reclaimed(hold, expected)

    async def _be_leaked(self, hold: Hold, reason: str) -> None:
        """Stay charged, and watch, until the driver gives the memory back."""
        message = "a worker has ended, but its GPU memory is not back"
        self._tell("alarm", message, logging.ERROR, gpu=self.spec.device, reason=reason)
        self._move(State.LEAKED)
        verdict = "held"
        while verdict == "held":
            await asyncio.sleep(LEAK_PAUSE)
            verdict = (await self._services.devices.reclaimed(hold, self._expected())).verdict
        self._move(State.GONE)

    def _memory_now(self) -> int:
        assert self.handle is not None
        memory = self.handle.memory()
        return memory.uss if memory else 0

    async def _be_stuck(self, exited: asyncio.Future[Exit], hold: Hold | None) -> None:
        """Give up waiting, but not watching."""
        assert self.handle is not None
        self._tell("alarm", "a worker does not exit even after SIGKILL", logging.ERROR)
        self._ended.set()
        self._move(State.STUCK)
        await exited
        self.handle.dispose()
        hold, gpu = await self._reclaimed(hold)
        if hold is not None and gpu is not None and gpu.verdict == "held":
            await self._be_leaked(hold, gpu.reason)
        else:
            self._move(State.GONE)


def _about_receipt(receipt: Receipt) -> dict[str, object]:
    return {
        "outcome": receipt.outcome,
        "freed_bytes": receipt.freed_host,
        "gpu_freed_bytes": sum(receipt.freed_gpu.values()) or None,
        "verified": receipt.verified,
        "aborted": receipt.in_flight_aborted or None,
        "seconds": round(receipt.total, 3),
    }


def _is_orderly(end: Exit) -> bool:
    """Return whether a process may end like this after SIGTERM; an unknown end counts as one."""
    return end.signal in {None, signal.SIGTERM} and not end.code


async def _within(exited: asyncio.Future[Exit], seconds: float) -> bool:
    """Return whether the exit came within the time."""
    await asyncio.wait({exited}, timeout=seconds)
    return exited.done()
