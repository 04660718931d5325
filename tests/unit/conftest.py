"""A machine for the fleet's unit tests: launcher, handles and clock that do as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.domain import CatalogueEntry, Exit, Memory, Options, SlotKey
from modelsup.supervisor.fleet.events import Events
from modelsup.supervisor.fleet.ledger import Charge
from modelsup.supervisor.fleet.measuring import ModelFiles
from modelsup.supervisor.fleet.services import Services, Timeouts
from modelsup.supervisor.fleet.slot import Slot
from modelsup.supervisor.fleet.worker import Worker
from modelsup.supervisor.policy.admission import HOST, Candidate
from modelsup.worker.contract import LaunchSpec, Signature, StatusMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

GPU_BYTES = 5_000_000
SIGNATURE = Signature("serving_default", (), (), batchable=False)


CHARGE = Charge(Candidate(None, {HOST: 1}), None, None, estimated=False)


class FakeUpstream:
    """Takes no requests; knows whether it was closed."""

    def __init__(self) -> None:
        self.refused = False
        self.closed = False

    def close(self) -> None:
        self.closed = True


class FakeHandle:
    """A process that ends as it is told: by signal 15 or 9, or only when the test says so."""

    def __init__(self, pid: int, say: Callable[[StatusMessage], None], uid: str) -> None:
        self.pid = pid
        self.guard: str | None = None
        self.upstream = FakeUpstream()
        self.ignored: set[str] = set()  # "terminate", "kill"
        self.calls: list[str] = []
        self._say = say
        self._uid = uid
        self._exit: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()

    def say(self, *stages: str, **facts: Any) -> None:
        """Send status messages, one for each stage."""
        for stage in stages:
            signatures = (SIGNATURE,) if stage == "ready" else ()
            self._say(StatusMessage(self._uid, stage, signatures, **facts))  # type: ignore[arg-type]

    def end(self, **how: int) -> None:
        """End the process, with a code or by a signal."""
        if not self._exit.done():
            self._exit.set_result(Exit(**how))

    @property
    def ended(self) -> bool:
        return self._exit.done()

    async def exited(self) -> Exit:
        return await asyncio.shield(self._exit)

    def go_on(self) -> None:
        self.calls.append("go on")

    def terminate(self) -> None:
        self.calls.append("terminate")
        if "terminate" not in self.ignored:
            self.end(code=0)

    def kill(self) -> None:
        self.calls.append("kill")
        if "kill" not in self.ignored:
            self.end(signal=9)

    def memory(self) -> Memory | None:
        return None if self._exit.done() else Memory(pss=300, uss=200, rss=400)

    def dispose(self) -> None:
        self.calls.append("dispose")


@dataclass
class Held:
    """What a worker holds of a GPU."""

    bytes: int | None
    grown: int | None = None


@dataclass
class Outcome:
    """What became of that."""

    verdict: str
    freed: int
    reason: str = "the test says so"


class Machine:
    """All that workers need of the outside."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.events = Events(self)
        self.verdicts: list[str] = []  # on each look for GPU memory: "back", "held", "unknown"
        self.expected: list[int | None] = []  # bytes, of each such look
        self.held = Held(GPU_BYTES)  # what workers hold of a GPU
        self.refusal: Exception | None = None  # what the next spawn raises
        self.gate: asyncio.Event | None = None  # what spawns wait for
        self.handles: asyncio.Queue[FakeHandle] = asyncio.Queue()
        self.spawned = 0
        self.reason = "nothing is parked here"
        self.spawning = asyncio.Event()  # set at the first one
        self.timeouts = Timeouts(load=30, drain=30, term=30, kill=30)

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """Run a test on an event loop, for 20 s at most."""
        asyncio.run(asyncio.wait_for(story, 20))

    @property
    def services(self) -> Services:
        return Services(
            self, self, self, self, self, self.timeouts, lambda uid: f"/tmp/{uid}", self.events
        )

    # clock

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000 + self.now

    # logs and devices

    def last_lines(self, worker: str, count: int) -> tuple[str, ...]:
        return (f"last words of {worker}",)

    def all(self) -> list[Any]:
        return []

    def choose(self, wanted: str | None) -> None:
        return None

    async def hold(self, uuid: str, pid: int, at_launch: Held | None = None) -> Held:
        return self.held

    async def reclaimed(self, hold: Held, expected: int | None = None) -> Outcome:
        self.expected.append(expected)
        verdict = self.verdicts.pop(0)
        return Outcome(verdict, (hold.bytes or 0) if verdict == "back" else 0)

    # launcher

    async def spawn(self, spec: LaunchSpec, on_status: Callable[[StatusMessage], None]) -> Any:
        self.spawned += 1
        self.spawning.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        handle = FakeHandle(self.spawned, on_status, spec.uid)
        self.handles.put_nowait(handle)
        return handle


class Workshop:
    """One slot with its owner: makes real workers on a fake machine."""

    def __init__(self, machine: Machine, **options: Any) -> None:
        self.machine = machine
        self.events = machine.events
        self.files: object = "as they were"
        self.leased = False
        self.roomy = True  # there is room for a second worker
        self.jitter = 1.0
        self.states: list[str] = []
        self._changed = asyncio.Event()
        entry = CatalogueEntry("m", None, "echo", Options(**options))
        self.slot = Slot(
            SlotKey("m", "1"),
            entry,
            ModelFiles("1", None, 0, ""),
            self,
            machine,
            lambda: self.jitter,
        )

    async def measure(self, slot: Slot) -> None:
        pass

    async def admit(self, slot: Slot) -> None:
        slot.start(CHARGE)

    def withdraw(self, slot: Slot, error: Exception) -> None:
        pass

    def make_worker(self, slot: Slot, charge: Charge) -> Worker:
        uid = f"w{self.machine.spawned + 1}"
        spec = LaunchSpec(uid, "m", "1", "echo", None, "secret", f"/tmp/{uid}")

        def on_end() -> None:
            if not worker.traffic.in_flight:
                slot.on_requests_ended()

        worker = Worker(
            slot.key,
            spec,
            self.machine.services,
            slot.on_worker_change,
            on_end=on_end,
            restarts=slot.restarts,
        )
        return worker

    def room_beside(self, slot: Slot) -> Charge | None:
        return CHARGE if self.roomy else None

    def charges_parked(self, slot: Slot, worker: Worker) -> dict[str, int] | None:
        return None

    def fingerprint(self, slot: Slot) -> object:
        return self.files

    def slot_changed(self, slot: Slot) -> None:
        if not self.states or self.states[-1] != slot.state:
            self.states.append(slot.state)
        self._changed.set()

    def is_leased(self, slot: Slot) -> bool:
        return self.leased

    def fellows(self, slot: Slot) -> list[Slot]:
        return [slot]

    async def until(self, state: str) -> None:
        """Wait until the slot is in a state."""
        while self.slot.state != state:
            await self.changed()

    async def changed(self) -> None:
        """Wait until something about the slot changes."""
        self._changed.clear()
        await self._changed.wait()

    async def ready(self) -> FakeHandle:
        """Load the model; return its process."""
        wish = asyncio.ensure_future(self.slot.ensure_ready())
        handle = await self.machine.handles.get()
        await self.until("loading")
        handle.say("loading", "warming", "ready")
        await wish
        return handle


@pytest.fixture
def machine() -> Machine:
    """A machine on which nothing happens by itself."""
    return Machine()


@pytest.fixture
def workshop(machine: Machine) -> Workshop:
    """A slot on that machine."""
    return Workshop(machine)
