"""Whether a model may be loaded now, on which device, and what would have to go for it.

Pure: a snapshot and a wish in, a decision with its reasons out. It may be asked speculatively.
All memory is in bytes, all times in seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

HOST: Final = "host"  # the key of the host's memory beside the GPUs' UUIDs


@dataclass(frozen=True, slots=True)
class Resident:
    """A worker that holds memory, and what speaks against taking it away."""

    worker: str
    model: str
    charges: Mapping[str, int]  # by resource: HOST or a GPU's UUID
    pinned: bool = False
    fellow: bool = False  # another replica of what is wished
    leased_by: tuple[str, ...] = ()
    busy: bool = False  # requests in flight
    coming_up: bool = False
    going_down: bool = False  # its memory comes back without our doing
    lost: bool = False  # stuck or leaked: its memory may never come back
    outgoing: bool = False  # the wish itself is going to take its place
    used: bool = True  # it has answered the request that asked for it, or nobody waits for that
    ready_for: float = 0.0
    idle_for: float = 0.0
    reload_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to place the wished model: on a GPU, or (None) on the CPU."""

    device: str | None
    charges: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is. `minimum_residence` keeps two models from throwing each other out."""

    budgets: Mapping[str, int]
    residents: Sequence[Resident]
    minimum_residence: float = 5.0


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker to unload, and why this one."""

    worker: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """A worker that stays, and why; `passing` says that the reason goes away by itself."""

    worker: str
    model: str
    reason: str
    passing: bool


@dataclass(frozen=True, slots=True)
class Admit:
    """It fits now."""

    candidate: Candidate


@dataclass(frozen=True, slots=True)
class Evict:
    """It fits once these have gone; without victims: once those that are going have gone."""

    candidate: Candidate
    victims: tuple[Victim, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """It may fit once something that is in the way now has passed."""

    blockers: tuple[Blocker, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """It does not fit, and waiting would not help."""

    reason: str
    blockers: tuple[Blocker, ...] = ()


Decision = Admit | Evict | Wait | Refuse


def decide(snapshot: Snapshot, candidates: Sequence[Candidate]) -> Decision:
    """Decide on a wish that may be placed in any of the ways of `candidates`:

    fits beside all that is there            → Admit, where the least is left over
    fits once some that may go have gone     → Evict, the cheapest to lose
    fits once those that are busy are not    → Wait
    larger than the budget, or the rest is
    pinned, leased, a fellow or lost         → Refuse
    """
    possible = [c for c in candidates if _fits(c, _free(snapshot, ()))]
    if not possible:
        return Refuse(_too_large(snapshot, candidates))
    now = _free(snapshot, snapshot.residents)
    fitting = [c for c in possible if _fits(c, now)]
    if fitting:
        return Admit(min(fitting, key=lambda c: _left_over(c, now)))
    plans = [plan for c in possible if (plan := _evict_for(snapshot, c)) is not None]
    if plans:
        return min(plans, key=lambda plan: plan[0])[1]
    blockers = _blockers(snapshot, possible)
    lasting = [r for r in snapshot.residents if _stays(snapshot, r)]
    if any(_fits(c, _free(snapshot, lasting)) for c in possible):
        return Wait(tuple(b for b in blockers if b.passing))
    return Refuse("everything that is loaded there has to stay", blockers)


def total(residents: Iterable[Resident]) -> dict[str, int]:
    """Return the sum of the charges by resource."""
    sums: dict[str, int] = {}
    for resident in residents:
        for resource, size in resident.charges.items():
            sums[resource] = sums.get(resource, 0) + size
    return sums


def lacking(snapshot: Snapshot, candidates: Iterable[Candidate]) -> set[str]:
    """Return the resources of which too little is free now for any of the candidates."""
    now = _free(snapshot, snapshot.residents)
    return {name for candidate in candidates for name in _lacks(candidate, now)}


def blocker(snapshot: Snapshot, resident: Resident) -> Blocker | None:
    """Return why a worker may not be evicted now; None if it may, or is going already."""
    if resident.going_down:
        return None
    if resident.lost:
        return _blocked(resident, "did not give its memory back", passing=False)
    if resident.pinned:
        return _blocked(resident, "is pinned", passing=False)
    if resident.fellow:
        return _blocked(resident, "is another replica of it", passing=False)
    if resident.leased_by and not resident.outgoing:
        return _blocked(resident, f"is held by {', '.join(resident.leased_by)}", passing=False)
    if resident.coming_up:
        return _blocked(resident, "is being loaded", passing=True)
    if resident.busy:
        return _blocked(resident, "is answering requests", passing=True)
    if not resident.used:
        return _blocked(resident, "has not yet answered who asked for it", passing=True)
    if resident.ready_for < snapshot.minimum_residence and not resident.outgoing:
        return _blocked(resident, "was loaded only a moment ago", passing=True)
    return None


def _blocked(resident: Resident, reason: str, *, passing: bool) -> Blocker:
    return Blocker(resident.worker, resident.model, reason, passing)


def _stays(snapshot: Snapshot, resident: Resident) -> bool:
    found = blocker(snapshot, resident)
    return found is not None and not found.passing


def _blockers(snapshot: Snapshot, candidates: Sequence[Candidate]) -> tuple[Blocker, ...]:
    """Return the blockers that hold some of what any of the candidates lacks."""
    found = [(r, b) for r in snapshot.residents if (b := blocker(snapshot, r)) is not None]
    free = _free(snapshot, [resident for resident, _ in found])
    lacking = {name for candidate in candidates for name in _lacks(candidate, free)}
    return tuple(b for r, b in found if any(r.charges.get(name) for name in lacking))


def _free(snapshot: Snapshot, residents: Iterable[Resident]) -> dict[str, int]:
    taken = total(residents)
    return {name: size - taken.get(name, 0) for name, size in snapshot.budgets.items()}


def _without(free: Mapping[str, int], residents: Iterable[Resident]) -> dict[str, int]:
    """Return what is free once these have gone."""
    freed = total(residents)
    return {name: size + freed.get(name, 0) for name, size in free.items()}


def _lacks(candidate: Candidate, free: Mapping[str, int]) -> list[str]:
    """Return the resources of which too little is free. None is needed of one charged with 0."""
    return [n for n, size in candidate.charges.items() if size > max(0, free.get(n, 0))]


def _fits(candidate: Candidate, free: Mapping[str, int]) -> bool:
    return not _lacks(candidate, free)


def _left_over(candidate: Candidate, free: Mapping[str, int]) -> int:
    """Return what stays free on the candidate's device: the less, the better the fit."""
    resource = candidate.device or HOST
    return free.get(resource, 0) - candidate.charges.get(resource, 0)


def _evict_for(snapshot: Snapshot, candidate: Candidate) -> tuple[float, Evict] | None:
    """Return the cost and the plan of making room for a candidate; None if there is no way.

    Either one victim alone or those that cost least for their bytes, whatever is cheaper.
    """
    staying = [r for r in snapshot.residents if not r.going_down]
    free = _free(snapshot, staying)
    if _fits(candidate, free):
        return 0.0, Evict(candidate, ())
    evictable = [r for r in staying if blocker(snapshot, r) is None]
    choices = [[resident] for resident in evictable] + [_cheap_ones(candidate, evictable, free)]
    enough = [chosen for chosen in choices if _fits(candidate, _without(free, chosen))]
    if not enough:
        return None
    chosen = min(enough, key=lambda chosen: (_total_loss(chosen), [r.worker for r in chosen]))
    victims = tuple(Victim(r.worker, r.model, _why(r)) for r in chosen)
    return _total_loss(chosen), Evict(candidate, victims)


def _cheap_ones(
    candidate: Candidate, evictable: Iterable[Resident], free: Mapping[str, int]
) -> list[Resident]:
    """Choose those that cost least for their bytes until it fits, or none is left to help."""
    chosen: list[Resident] = []
    for resident in sorted(evictable, key=lambda r: (_cost(r, candidate, free), r.worker)):
        left = _without(free, chosen)
        if _fits(candidate, left):
            break
        if _useful_bytes(resident, candidate, left):
            chosen.append(resident)
    return _needed(candidate, chosen, free)


def _needed(
    candidate: Candidate, chosen: list[Resident], free: Mapping[str, int]
) -> list[Resident]:
    """Spare those, dearest first, that turned out not to be needed."""
    for resident in sorted(chosen, key=_loss, reverse=True):
        fewer = [r for r in chosen if r is not resident]
        if _fits(candidate, _without(free, fewer)):
            chosen = fewer
    return chosen


def _useful_bytes(resident: Resident, candidate: Candidate, free: Mapping[str, int]) -> int:
    """Return the bytes that it holds of what the candidate lacks."""
    return sum(resident.charges.get(name, 0) for name in _lacks(candidate, free))


def _total_loss(residents: Iterable[Resident]) -> float:
    return math.fsum(map(_loss, residents))  # exact, so the order does not matter


def _loss(resident: Resident) -> float:
    """Return what losing it costs: seconds to reload, the more the more recently it was used."""
    return 0.0 if resident.outgoing else resident.reload_seconds / (1.0 + resident.idle_for)


def _cost(resident: Resident, candidate: Candidate, free: Mapping[str, int]) -> float:
    return _loss(resident) / max(1, _useful_bytes(resident, candidate, free))


def _why(resident: Resident) -> str:
    return (
        f"idle for {resident.idle_for:.0f} s, {resident.reload_seconds:.1f} s to load again, "
        f"holds {sum(resident.charges.values()) / 1e6:.0f} MB"
    )


def _too_large(snapshot: Snapshot, candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "there is no device that it could be placed on"
    texts = []
    for candidate in candidates:
        for name, size in candidate.charges.items():
            budget = snapshot.budgets.get(name, 0)
            if size > budget:
                what = "host memory" if name == HOST else name
                texts.append(
                    f"it needs {size / 1e6:.0f} MB of {what}, the budget is {budget / 1e6:.0f} MB"
                )
    return "; ".join(texts)
