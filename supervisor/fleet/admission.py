"""The queue for memory: who waits for room, who gets it, and who has to go for that."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final, Protocol

from ..errors import DoesNotFit, SupervisorError
from ..policy.admission import Admit, Decision, Evict, Refuse, Wait, decide, lacking
from ..states import COMING_UP, State
from .views import Plan

if TYPE_CHECKING:
    from collections.abc import Collection

    from ..domain import Footprint, SlotKey
    from ..policy.admission import Snapshot
    from .events import Events
    from .ledger import Charge, Ledger
    from .ports import Clock
    from .slot import Slot

REST: Final = 4.0  # times as long as a look has taken; the event loop has others to serve
LOOK_AGAIN: Final = 0.2  # seconds; for what passes with time alone, such as a minimum residence
OVERTAKING: Final = 1.0  # seconds in which later ones may take what an earlier one lacks


TELL_AGAIN: Final = 10.0  # seconds between two events about refusals of one model


# By the clients about to swap, and the crew that is to have one more worker.
_Seen = dict[tuple[tuple[str, ...], "SlotKey | None"], "Snapshot"]


class Yard(Protocol):
    """The slots and their workers, as the queue needs them."""

    def snapshot(self, clients: Collection[str], beside: SlotKey | None) -> Snapshot:
        """Return what holds memory now, as a wish of these clients finds it.

        The workers of the crew `beside` have to stay.
        """
        ...

    def learned(self, slot: Slot) -> Footprint | None:
        """Return what was measured of the slot's model before."""
        ...

    def evict(self, worker: str, reason: str) -> None:
        """Begin to unload a worker."""
        ...


@dataclass(eq=False, slots=True)
class _Ticket:
    slot: Slot
    number: int
    since: float  # monotonic
    admitted: asyncio.Future[None]
    waiting: int = 0
    told: bool = False  # that it waits

    @property
    def rank(self) -> tuple[int, int]:
        return (-self.slot.priority, self.number)


class Admission:
    """Lets models in one after another; the sum of the charges never passes the budget.

    A model has one ticket however many requests wait for it. Highest priority first, then the
    oldest. A later one may overtake if it fits as things are: for a while in any case, and then
    only if it takes nothing of what an earlier one lacks.
    """

    def __init__(
        self, ledger: Ledger, yard: Yard, clock: Clock, events: Events, longest_wait: float
    ) -> None:
        self._ledger = ledger
        self._yard = yard
        self._clock = clock
        self._events = events
        self._longest_wait = longest_wait
        self._told: dict[str, float] = {}  # monotonic time at which a model's refusal was told
        self._tickets: dict[Slot, _Ticket] = {}
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._due = self._rest_until = 0.0  # monotonic: of the timer; of the pause after a look
        self._looking = False

    @property
    def queue(self) -> tuple[str, ...]:
        """The models that wait for room, first in line first."""
        return tuple(dict.fromkeys(t.slot.key.model for t in self._in_line()))

    async def admit(self, slot: Slot) -> None:
        """Wait until the slot's worker was started. Raises DoesNotFit, at once or in the end."""
        ticket = self._tickets.get(slot)
        if ticket is None:
            admitted = asyncio.get_running_loop().create_future()
            number, now = next(self._numbers), self._clock.monotonic()
            ticket = self._tickets[slot] = _Ticket(slot, number, now, admitted)
        ticket.waiting += 1
        try:
            self.poke()
            await asyncio.wait({ticket.admitted}, timeout=self._longest_wait)
            if not ticket.admitted.done():
                raise self._refusal(slot, f"no room was found in {self._longest_wait:g} s")
            ticket.admitted.result()
        finally:
            ticket.waiting -= 1
            if not ticket.waiting and self._tickets.get(slot) is ticket:
                del self._tickets[slot]

    def room_now(self, slot: Slot) -> Charge | None:
        """Return what another worker of the slot costs, if that fits and nobody waits for room."""
        if self._tickets:
            return None
        charges, _, decision = self._decide(slot, {})
        if not isinstance(decision, Admit):
            return None
        return next(c for c in charges if c.candidate == decision.candidate)

    def withdraw(self, slot: Slot, error: Exception) -> None:
        """Take a slot out of the line; who waits for it gets the error."""
        ticket = self._tickets.get(slot)
        if ticket is not None:
            self._finish(ticket, error)

    def poke(self) -> None:
        """Look again soon: something has changed that may make room.

        One look serves all that pokes in one step of the event loop. A look takes the longer the
        more models wait and live; what follows a long one is put off for longer.
        """
        if self._tickets and not self._looking:
            self._look_in(max(0.0, self._rest_until - self._clock.monotonic()))

    def _look_in(self, seconds: float) -> None:
        due = self._clock.monotonic() + seconds
        if self._timer is not None:
            if self._due <= due:
                return
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        began = self._clock.monotonic()
        self._looking = True
        try:
            self._serve_line()
            self._tell_who_waits()
        finally:
            self._looking = False
            now = self._clock.monotonic()
            self._rest_until = now + REST * (now - began)
            if self._tickets:
                self._look_in(max(LOOK_AGAIN, self._rest_until - now))

    def _tell_who_waits(self) -> None:
        for ticket in self._tickets.values():
            if not ticket.told:
                ticket.told = True
                model = ticket.slot.key.model
                self._events.tell("queue", "a model waits for room", model=model)

    def _in_line(self) -> list[_Ticket]:
        return sorted(self._tickets.values(), key=lambda t: t.rank)

    def _serve_line(self) -> None:
        """Look at each ticket, first in line first:

        fits                              → in, unless an earlier one has waited long for that
        fits once others have gone        → those go, unless an earlier one waits for that too
        may fit once something has passed → waits
        cannot fit                        → refused, wherever it stands in the line
        """
        lacked: set[str] = set()  # resources, by those before in the line
        reserved: set[str] = set()  # of these, what one has lacked for too long
        seen: _Seen = {}
        for ticket in self._in_line():
            charges, snapshot, decision = self._decide(ticket.slot, seen)
            if isinstance(decision, Refuse):
                self._finish(ticket, self._refusal(ticket.slot, decision.reason))
                continue
            if isinstance(decision, Admit) and not reserved & _takes(decision):
                self._let_in(ticket, charges, decision)
                seen.clear()
                continue
            lacks = lacking(snapshot, [c.candidate for c in charges])
            if isinstance(decision, Evict) and not lacked & lacks:
                self._make_room(ticket.slot, decision)
                seen.clear()
            lacked |= lacks
            if self._clock.monotonic() - ticket.since > OVERTAKING:
                reserved |= lacks

    def _decide(self, slot: Slot, seen: _Seen) -> tuple[list[Charge], Snapshot, Decision]:
        """Decide on a slot. `seen` holds the snapshots since the last change, to be used again."""
        charges = self._ledger.charges(slot, self._yard.learned(slot))
        clients = tuple(slot.swapping)
        beside = slot.key.crew if slot.replicated else None
        snapshot = seen.get((clients, beside))
        if snapshot is None:
            snapshot = seen[clients, beside] = self._yard.snapshot(clients, beside)
        return charges, snapshot, decide(snapshot, [c.candidate for c in charges])

    def _let_in(self, ticket: _Ticket, charges: list[Charge], decision: Admit) -> None:
        charge = next(c for c in charges if c.candidate == decision.candidate)
        try:
            ticket.slot.start(charge)
        except SupervisorError as error:
            self._finish(ticket, error)
        else:
            self._finish(ticket, None)

    def _finish(self, ticket: _Ticket, error: Exception | None) -> None:
        self._tickets.pop(ticket.slot, None)
        if ticket.admitted.done():
            return
        if error is None:
            ticket.admitted.set_result(None)
        else:
            ticket.admitted.set_exception(error)
            ticket.admitted.exception()  # whoever waits takes it; they may have gone

    def _make_room(self, slot: Slot, decision: Evict) -> None:
        for victim in decision.victims:
            self._yard.evict(victim.worker, f"room for {slot.key.model}: {victim.reason}")

    # --- the same question without the deed ---

    def plan(self, slot: Slot) -> Plan:
        """Return what a load would do now: nothing, where the model is loaded or on its way."""
        learned = self._yard.learned(slot)
        worker = slot.current
        if worker is not None and (worker.state is State.READY or worker.state in COMING_UP):
            return Plan(
                model=slot.key.model,
                fits="now",
                device=worker.spec.device,
                charges=dict(worker.charges),
                estimated=worker.estimated,
                victims=(),
                blockers=(),
                reason=f"it is {worker.state} already",
                seconds=worker.seconds.get("total", learned.seconds if learned else None),
            )
        charges, _, decision = self._decide(slot, {})
        charge = charges[0] if charges else None
        if isinstance(decision, (Admit, Evict)):
            charge = next(c for c in charges if c.candidate == decision.candidate)
        return Plan(
            model=slot.key.model,
            fits=_FITS[type(decision)],
            device=charge.candidate.device if charge else None,
            charges=dict(charge.candidate.charges) if charge else {},
            estimated=charge.estimated if charge else True,
            victims=decision.victims if isinstance(decision, Evict) else (),
            blockers=decision.blockers if isinstance(decision, (Wait, Refuse)) else (),
            reason=decision.reason if isinstance(decision, Refuse) else "",
            seconds=learned.seconds if learned else None,
        )

    def _refusal(self, slot: Slot, reason: str) -> DoesNotFit:
        """Return the error, and tell of it: not of each request that meets with it."""
        error, model = self._does_not_fit(slot, reason), slot.key.model
        now = self._clock.monotonic()
        if now - self._told.get(model, -TELL_AGAIN) >= TELL_AGAIN:
            self._told[model] = now
            self._events.tell("queue", "a model does not fit", model=model, reason=str(error))
        return error

    def _does_not_fit(self, slot: Slot, reason: str) -> DoesNotFit:
        plan = self.plan(slot)
        in_the_way = "; ".join(f"{b.model} {b.reason}" for b in plan.blockers)
        text = f"model {slot.key.model} does not fit: {reason}"
        return DoesNotFit(
            f"{text} ({in_the_way})" if in_the_way else text,
            model=slot.key.model,
            plan=asdict(plan),
        )


def _takes(decision: Admit) -> set[str]:
    return {name for name, size in decision.candidate.charges.items() if size}


_FITS: Final[dict[type, str]] = {
    Admit: "now",
    Evict: "after eviction",
    Wait: "after waiting",
    Refuse: "no",
}
