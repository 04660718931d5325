"""Whether a model may be loaded now, on which device, and what would have to go for it.

Pure: a snapshot and a wish in, a decision with its reasons out. It may be asked speculatively.
All memory is in bytes, all times in seconds.
"""

from __future__ import annotations

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
    pinned, leased or lost                   → Refuse
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
    blockers = tuple(b for r in snapshot.residents if (b := blocker(snapshot, r)) is not None)
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


def blocker(snapshot: Snapshot, resident: Resident) -> Blocker | None:
    """Return why a worker may not be evicted now; None if it may, or is going already."""
    if resident.going_down:
        return None
    if resident.lost:
        return _blocked(resident, "did not give its memory back", passing=False)
    if resident.pinned:
        return _blocked(resident, "is pinned", passing=False)
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


def _free(snapshot: Snapshot, residents: Iterable[Resident]) -> dict[str, int]:
    taken = total(residents)
    return {name: size - taken.get(name, 0) for name, size in snapshot.budgets.items()}


def _fits(candidate: Candidate, free: Mapping[str, int]) -> bool:
    return all(size <= free.get(name, 0) for name, size in candidate.charges.items())


def _left_over(candidate: Candidate, free: Mapping[str, int]) -> int:
    """Return what stays free on the candidate's device: the less, the better the fit."""
    resource = candidate.device or HOST
    return free.get(resource, 0) - candidate.charges.get(resource, 0)


def _evict_for(snapshot: Snapshot, candidate: Candidate) -> tuple[float, Evict] | None:
    """Return the cost and the plan of making room for a candidate; None if there is no way."""
    staying = [r for r in snapshot.residents if not r.going_down]
    free = _free(snapshot, staying)
    evictable = [r for r in staying if blocker(snapshot, r) is None]
    chosen: list[Resident] = []
    for resident in sorted(evictable, key=lambda r: (_cost(r, candidate, free), r.worker)):
        if _fits(candidate, free):
            break
        if _helps(resident, candidate, free):
            chosen.append(resident)
            free = _free(snapshot, [r for r in staying if r not in chosen])
    if not _fits(candidate, free):
        return None
    chosen = _needed(snapshot, candidate, staying, chosen)
    victims = tuple(Victim(r.worker, r.model, _why(r)) for r in chosen)
    return sum(map(_loss, chosen)), Evict(candidate, victims)


def _needed(
    snapshot: Snapshot, candidate: Candidate, staying: list[Resident], chosen: list[Resident]
) -> list[Resident]:
    """Spare those, dearest first, that turned out not to be needed."""
    for resident in sorted(chosen, key=_loss, reverse=True):
        fewer = [r for r in chosen if r is not resident]
        if _fits(candidate, _free(snapshot, [r for r in staying if r not in fewer])):
            chosen = fewer
    return chosen


def _helps(resident: Resident, candidate: Candidate, free: Mapping[str, int]) -> bool:
    return _useful_bytes(resident, candidate, free) > 0


def _useful_bytes(resident: Resident, candidate: Candidate, free: Mapping[str, int]) -> int:
    """Return the bytes that it holds of what the candidate lacks."""
    short = [name for name, size in candidate.charges.items() if size > free.get(name, 0)]
    return sum(resident.charges.get(name, 0) for name in short)


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
                texts.append(
                    f"it needs {size / 1e6:.0f} MB of {name}, the budget is {budget / 1e6:.0f} MB"
                )
    return "; ".join(texts)
