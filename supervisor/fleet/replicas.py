"""How many workers serve a version of a model: which are too many, and the start of those lacking.

A load asks for all of them. Later on, those that are lacking come when there is room for them as
things are; nothing has to go for that, and one that has failed stays so until the next load.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from ..domain import Options, SlotKey
    from .ledger import Charge
    from .roster import Roster
    from .slot import Slot


def wanted(key: SlotKey, options: Options) -> int:
    """Return how many workers a crew is to have; a client's private model has one."""
    return 1 if key.client else options.replicas or 1


def surplus(slots: Sequence[Slot], number: int) -> list[Slot]:
    """Return those of a crew, the nearest to serving first, that are more than it is to have."""
    return [slot for slot in slots[number:] if slot.state != "unloaded"]


def is_lacking(slots: Sequence[Slot]) -> bool:
    """Return whether a crew that serves has fewer workers than it is to have, failed ones aside."""
    best = slots[0]
    number = wanted(best.key, best.entry.options)
    return best.standing == 0 and best.kept and sum(s.state != "unloaded" for s in slots) < number


class Yard(Protocol):
    """The slots, as those that are lacking come to be."""

    @property
    def roster(self) -> Roster:
        """The slots that there are."""
        ...

    def vacancy(self, slot: Slot) -> Slot:
        """Return a slot of a slot's crew that has no worker, made at need."""
        ...

    async def measure(self, slot: Slot) -> None:
        """Look how large the model's files are."""
        ...

    def room_beside(self, slot: Slot) -> Charge | None:
        """Return the charge of a worker of the slot if that fits now, beside all others."""
        ...

    def forget_empty(self, slot: Slot) -> None:
        """Drop a slot in which nothing is left to remember."""
        ...


class Refill:
    """Starts the workers that are lacking, one crew at a time each."""

    def __init__(self, yard: Yard, spawn: Callable[[Coroutine[None, None, None]], object]) -> None:
        self._yard = yard
        self._spawn = spawn
        self._filling: set[SlotKey] = set()
        self._poked = False

    def poke(self) -> None:
        """Look again soon: something has changed. One look serves all pokes of one step."""
        if not self._poked:
            self._poked = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._poked = False
        for key in self._yard.roster.crews():
            if key not in self._filling and is_lacking(self._yard.roster.crew(key)):
                self._filling.add(key)
                self._spawn(self._fill(key))

    async def _fill(self, key: SlotKey) -> None:
        try:
            while (slot := self._next(key)) is not None:
                if not await self._start(slot):
                    break
        finally:
            self._filling.discard(key)

    def _next(self, key: SlotKey) -> Slot | None:
        slots = self._yard.roster.crew(key)
        if not slots or not is_lacking(slots):
            return None
        return self._yard.vacancy(slots[0])

    async def _start(self, slot: Slot) -> bool:
        await self._yard.measure(slot)
        slots = self._yard.roster.crew(slot.key)
        if slot in slots and slot.state == "unloaded" and is_lacking(slots):
            charge = self._yard.room_beside(slot)
            if charge is not None:
                slot.explicit = slots[0].explicit
                slot.start(charge)
                return True
        self._yard.forget_empty(slot)
        return False
