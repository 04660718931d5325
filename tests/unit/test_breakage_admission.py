"""The queue for room under a crowd: a change must not cost a decision for each that waits."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from modelsup.supervisor.domain import SlotKey
from modelsup.supervisor.fleet.admission import Admission
from modelsup.supervisor.fleet.ledger import Charge
from modelsup.supervisor.policy.admission import HOST, Candidate, Resident, Snapshot

CROWD = 100
CHANGES = 500


class Yard:
    """One worker that stays busy and holds nearly all there is."""

    def __init__(self) -> None:
        self.snapshots = 0
        self.room = 10
        self.seen = asyncio.Event()

    def snapshot(self, clients: object, beside: object) -> Snapshot:
        self.snapshots += 1
        self.seen.set()
        return Snapshot({HOST: 100}, [Resident("w", "m", {HOST: 100 - self.room}, busy=True)])

    def learned(self, slot: object) -> None:
        return None


class Slot:
    """A slot that notes its start."""

    priority = 0
    replicated = False

    def __init__(self, number: int, started: list[int]) -> None:
        self.key = SlotKey(f"m{number}", "1", "")
        self.swapping: list[str] = []
        self.start = lambda charge: started.append(number)


def admission(yard: Yard) -> Admission:
    """Return a queue in which each model costs 50."""
    charge = Charge(Candidate(None, {HOST: 50}), None, None, estimated=False)
    ledger = SimpleNamespace(charges=lambda slot, learned: [charge])
    clock = SimpleNamespace(monotonic=lambda: 0.0)  # a look takes no time
    events = SimpleNamespace(tell=lambda *args, **facts: None)
    return Admission(cast("Any", ledger), cast("Any", yard), cast("Any", clock), events, 5.0)


def test_a_crowd_that_comes_at_once_is_looked_at_together() -> None:
    """Both their coming and the changes of one step of the loop make one look, one snapshot."""

    async def run() -> None:
        yard, started = Yard(), list[int]()
        queue = admission(yard)
        slots = [cast("Any", Slot(number, started)) for number in range(CROWD)]
        waiting = [asyncio.ensure_future(queue.admit(slot)) for slot in slots]
        await yard.seen.wait()
        assert len(queue.queue) == CROWD
        for _ in range(CHANGES):
            queue.poke()
        before = yard.snapshots
        assert before <= 3
        yard.room = 50
        for _ in range(CHANGES):
            queue.poke()
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert yard.snapshots <= before + CROWD + 2  # one for each that is let in, at most
        assert started[0] == 0
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert queue.queue == ()

    asyncio.run(run())
