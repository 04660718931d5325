"""Admission: small examples, and what must hold for all snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from modelsup.supervisor.policy.admission import (
    HOST,
    Admit,
    Candidate,
    Evict,
    Refuse,
    Resident,
    Snapshot,
    Wait,
    blocker,
    decide,
    total,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

RESOURCES = (HOST, "GPU-a", "GPU-b")
OLD = 100.0  # seconds; longer than any minimum residence here


def resident(worker: str, size: int, *, on: str = HOST, **facts: Any) -> Resident:
    """Return a worker that may be evicted, unless `facts` say otherwise."""
    shown: dict[str, Any] = {"charges": {on: size}, "ready_for": OLD, "idle_for": 10.0} | facts
    return Resident(worker, f"model-{worker}", **shown)


def cpu(size: int) -> Candidate:
    return Candidate(None, {HOST: size})


def gpu(uuid: str, size: int, host: int = 0) -> Candidate:
    return Candidate(uuid, {uuid: size, HOST: host})


def host_of(size: int, *residents: Resident) -> Snapshot:
    return Snapshot({HOST: size}, residents)


def victims_of(decision: object) -> list[str]:
    assert isinstance(decision, Evict)
    return [victim.worker for victim in decision.victims]


# --- examples ---


def test_what_fits_is_admitted() -> None:
    assert decide(host_of(100, resident("a", 60)), [cpu(40)]) == Admit(cpu(40))


def test_among_gpus_the_fullest_that_fits_is_taken() -> None:
    snapshot = Snapshot(
        {HOST: 100, "GPU-a": 80, "GPU-b": 80},
        [resident("a", 30, on="GPU-a"), resident("b", 50, on="GPU-b")],
    )
    decision = decide(snapshot, [gpu("GPU-a", 20), gpu("GPU-b", 20)])
    assert decision == Admit(gpu("GPU-b", 20))
    decision = decide(snapshot, [gpu("GPU-a", 40), gpu("GPU-b", 40)])
    assert decision == Admit(gpu("GPU-a", 40))


def test_a_model_never_spans_two_gpus() -> None:
    snapshot = Snapshot({HOST: 100, "GPU-a": 50, "GPU-b": 50}, [])
    decision = decide(snapshot, [gpu("GPU-a", 60), gpu("GPU-b", 60)])
    assert isinstance(decision, Refuse)


def test_a_free_gpu_is_no_help_where_host_memory_is_short() -> None:
    snapshot = Snapshot({HOST: 100, "GPU-a": 50}, [resident("a", 90), resident("b", 9, on="GPU-a")])
    assert victims_of(decide(snapshot, [gpu("GPU-a", 20, host=20)])) == ["a"]


def test_the_longest_idle_goes_first_where_all_else_is_equal() -> None:
    snapshot = host_of(100, resident("new", 50, idle_for=1.0), resident("old", 50, idle_for=500.0))
    assert victims_of(decide(snapshot, [cpu(50)])) == ["old"]


def test_the_quickest_to_load_again_goes_first_where_all_else_is_equal() -> None:
    snapshot = host_of(
        100, resident("slow", 50, reload_seconds=9.0), resident("quick", 50, reload_seconds=0.1)
    )
    assert victims_of(decide(snapshot, [cpu(50)])) == ["quick"]


def test_the_larger_goes_first_where_all_else_is_equal() -> None:
    snapshot = host_of(100, resident("small", 30), resident("large", 70))
    assert victims_of(decide(snapshot, [cpu(20)])) == ["large"]


def test_one_victim_is_chosen_over_two_that_cost_more() -> None:
    """By their bytes, b and c are cheaper each; together they are not."""
    snapshot = host_of(
        28,
        resident("a", 10, reload_seconds=10.0),
        resident("b", 9, reload_seconds=5.0),
        resident("c", 9, reload_seconds=8.0),
    )
    assert victims_of(decide(snapshot, [cpu(10)])) == ["a"]


def test_two_victims_are_chosen_over_one_that_costs_more() -> None:
    snapshot = host_of(
        28,
        resident("a", 10, reload_seconds=100.0),
        resident("b", 9, reload_seconds=5.0),
        resident("c", 9, reload_seconds=8.0),
    )
    assert sorted(victims_of(decide(snapshot, [cpu(10)]))) == ["b", "c"]


def test_a_cheap_one_that_is_not_needed_in_the_end_is_spared() -> None:
    snapshot = host_of(
        32,
        resident("crumb", 1, reload_seconds=0.01),
        resident("b", 15, reload_seconds=1.0),
        resident("c", 16, reload_seconds=2.0),
    )
    assert sorted(victims_of(decide(snapshot, [cpu(31)]))) == ["b", "c"]


def test_the_cheaper_gpu_is_emptied() -> None:
    snapshot = Snapshot(
        {HOST: 100, "GPU-a": 50, "GPU-b": 50},
        [
            resident("a", 50, on="GPU-a", reload_seconds=8.0),
            resident("b", 50, on="GPU-b", reload_seconds=2.0),
        ],
    )
    decision = decide(snapshot, [gpu("GPU-a", 30), gpu("GPU-b", 30)])
    assert victims_of(decision) == ["b"]
    assert isinstance(decision, Evict)
    assert decision.candidate.device == "GPU-b"


def test_nobody_is_evicted_for_what_is_coming_back_anyway() -> None:
    snapshot = host_of(100, resident("going", 60, going_down=True), resident("idle", 40))
    assert decide(snapshot, [cpu(50)]) == Evict(cpu(50), ())


def test_a_victim_says_why_it_was_chosen() -> None:
    worker = resident("a", 50_000_000, idle_for=42.0, reload_seconds=1.5)
    decision = decide(host_of(60_000_000, worker), [cpu(50_000_000)])
    assert isinstance(decision, Evict)
    assert decision.victims[0].reason == "idle for 42 s, 1.5 s to load again, holds 50 MB"


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"coming_up": True}, "is being loaded"),
        ({"busy": True}, "is answering requests"),
        ({"used": False}, "has not yet answered who asked for it"),
        ({"ready_for": 4.9}, "was loaded only a moment ago"),
    ],
)
def test_what_passes_is_waited_for(facts: dict[str, Any], reason: str) -> None:
    decision = decide(host_of(100, resident("a", 60, **facts)), [cpu(50)])
    assert isinstance(decision, Wait)
    assert [(b.worker, b.model, b.reason) for b in decision.blockers] == [("a", "model-a", reason)]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"pinned": True}, "is pinned"),
        ({"leased_by": ("john", "mary")}, "is held by john, mary"),
        ({"lost": True}, "did not give its memory back"),
        ({"pinned": True, "busy": True}, "is pinned"),
    ],
)
def test_what_lasts_is_refused_with_the_reason(facts: dict[str, Any], reason: str) -> None:
    decision = decide(host_of(100, resident("a", 60, **facts)), [cpu(50)])
    assert isinstance(decision, Refuse)
    assert [(b.worker, b.reason, b.passing) for b in decision.blockers] == [("a", reason, False)]


def test_only_those_that_are_in_the_way_are_named() -> None:
    snapshot = Snapshot(
        {HOST: 100, "GPU-a": 50, "GPU-b": 50},
        [
            resident("pinned-here", 40, on="GPU-a", pinned=True),
            resident("busy-elsewhere", 40, on="GPU-b", busy=True),
            resident("busy-on-the-cpu", 40, busy=True),
        ],
    )
    decision = decide(snapshot, [gpu("GPU-a", 20, host=20)])
    assert isinstance(decision, Refuse)
    assert [b.worker for b in decision.blockers] == ["pinned-here"]


def test_larger_than_the_budget_is_refused_in_numbers() -> None:
    decision = decide(host_of(100_000_000, resident("a", 1)), [cpu(150_000_000)])
    assert decision == Refuse("it needs 150 MB of host memory, the budget is 100 MB")


def test_no_device_at_all_is_refused() -> None:
    assert decide(host_of(100), []) == Refuse("there is no device that it could be placed on")


def test_a_gpu_that_nobody_knows_has_no_room() -> None:
    decision = decide(host_of(100), [gpu("GPU-x", 1)])
    assert isinstance(decision, Refuse)
    assert "GPU-x" in decision.reason


def test_a_resource_that_is_over_its_budget_is_no_hindrance_where_none_of_it_is_needed() -> None:
    """A budget may shrink below what is charged, when others take memory of the machine."""
    snapshot = Snapshot({HOST: 10, "GPU-a": 50}, [resident("a", 20, pinned=True)])
    assert decide(snapshot, [gpu("GPU-a", 30, host=0)]) == Admit(gpu("GPU-a", 30, host=0))


# --- properties ---

# A busy machine is slow now and then, and most tests look at one kind of decision alone.
relaxed = settings(deadline=None, suppress_health_check=list(HealthCheck))

sizes = st.one_of(st.integers(20, 60), st.integers(0, 60))
charges = st.dictionaries(st.sampled_from(RESOURCES), sizes, min_size=1, max_size=3)
seconds = st.sampled_from([0.0, 0.5, 4.9, 5.0, 30.0, 3600.0])
FACTS: tuple[dict[str, Any], ...] = (
    {"pinned": True},
    {"leased_by": ("john",)},
    {"busy": True},
    {"coming_up": True},
    {"going_down": True},
    {"lost": True},
    {"used": False},
    {"ready_for": 4.9},
    {"pinned": True, "busy": True},
    {"leased_by": ("john",), "going_down": True},
)


@st.composite
def residents(draw: st.DrawFn) -> list[Resident]:
    """Draw up to six workers, half of which may be evicted."""
    return [
        resident(
            f"w{number}",
            0,
            charges=draw(charges),
            idle_for=draw(seconds),
            reload_seconds=draw(st.sampled_from([0.0, 0.1, 1.0, 20.0])),
            **draw(st.one_of(st.just({}), st.sampled_from(FACTS))),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


budgets = st.fixed_dictionaries(dict.fromkeys(RESOURCES, st.integers(30, 120)))
snapshots = st.builds(Snapshot, budgets, residents())
candidates = st.lists(
    st.builds(Candidate, st.sampled_from([None, "GPU-a", "GPU-b"]), charges), min_size=1, max_size=2
)


def fits(candidate: Candidate, budget: Mapping[str, int], beside: Iterable[Resident]) -> bool:
    """Tell whether a candidate's charges fit beside those workers, by plain addition."""
    held = list(beside)
    return all(
        size == 0 or size + sum(r.charges.get(name, 0) for r in held) <= budget.get(name, 0)
        for name, size in candidate.charges.items()
    )


def may_go(snapshot: Snapshot, worker: Resident) -> bool:
    """The design's words: never one that is busy, loading, pinned, leased, unused, or fresh."""
    return not (
        worker.pinned
        or worker.leased_by
        or worker.busy
        or worker.coming_up
        or worker.going_down
        or worker.lost
        or not worker.used
        or worker.ready_for < snapshot.minimum_residence
    )


def lasts(worker: Resident) -> bool:
    return not worker.going_down and bool(worker.pinned or worker.leased_by or worker.lost)


@relaxed
@given(snapshots, candidates)
def test_the_decision_is_the_right_kind(snapshot: Snapshot, wished: list[Candidate]) -> None:
    """Admit if it fits, else Evict if it can be made to fit, else Wait if that may help."""

    def any_fits(beside: list[Resident]) -> bool:
        return any(fits(candidate, snapshot.budgets, beside) for candidate in wished)

    everyone = list(snapshot.residents)
    decision = decide(snapshot, wished)
    if any_fits(everyone):
        assert isinstance(decision, Admit)
    elif any_fits([r for r in everyone if not (r.going_down or may_go(snapshot, r))]):
        assert isinstance(decision, Evict)
    elif any_fits([r for r in everyone if lasts(r)]):
        assert isinstance(decision, Wait)
    else:
        assert isinstance(decision, Refuse)


@relaxed
@given(snapshots, candidates)
def test_admit_is_the_best_fit(snapshot: Snapshot, wished: list[Candidate]) -> None:
    decision = decide(snapshot, wished)
    assume(isinstance(decision, Admit))
    assert isinstance(decision, Admit)
    assert decision.candidate in wished
    assert fits(decision.candidate, snapshot.budgets, snapshot.residents)

    def left(candidate: Candidate) -> int:
        name = candidate.device or HOST
        held = sum(r.charges.get(name, 0) for r in snapshot.residents)
        return snapshot.budgets[name] - held - candidate.charges.get(name, 0)

    fitting = [c for c in wished if fits(c, snapshot.budgets, snapshot.residents)]
    assert left(decision.candidate) == min(map(left, fitting))


@relaxed
@given(snapshots, candidates)
def test_evict_takes_what_may_go_is_enough_and_is_needed(
    snapshot: Snapshot, wished: list[Candidate]
) -> None:
    decision = decide(snapshot, wished)
    assume(isinstance(decision, Evict))
    assert isinstance(decision, Evict)
    assert decision.candidate in wished
    by_id = {r.worker: r for r in snapshot.residents}
    victims = [by_id[victim.worker] for victim in decision.victims]
    assert len({victim.worker for victim in victims}) == len(victims)
    assert all(may_go(snapshot, victim) for victim in victims)
    assert [v.model for v in decision.victims] == [victim.model for victim in victims]
    staying = [r for r in snapshot.residents if not r.going_down and r not in victims]
    assert fits(decision.candidate, snapshot.budgets, staying)
    for victim in victims:
        assert not fits(decision.candidate, snapshot.budgets, [*staying, victim])


@relaxed
@given(snapshots, candidates)
def test_no_single_victim_would_have_cost_less(snapshot: Snapshot, wished: list[Candidate]) -> None:
    decision = decide(snapshot, wished)
    assume(isinstance(decision, Evict))
    assert isinstance(decision, Evict)

    def loss(worker: Resident) -> float:
        return worker.reload_seconds / (1.0 + worker.idle_for)

    by_id = {r.worker: r for r in snapshot.residents}
    cost = sum(loss(by_id[victim.worker]) for victim in decision.victims)
    staying = [r for r in snapshot.residents if not r.going_down]
    for worker in filter(lambda r: may_go(snapshot, r), staying):
        others = [r for r in staying if r is not worker]
        if any(fits(candidate, snapshot.budgets, others) for candidate in wished):
            assert cost <= loss(worker) * (1 + 1e-9)


@relaxed
@given(snapshots, candidates)
def test_who_waits_or_is_refused_is_told_what_is_in_the_way(
    snapshot: Snapshot, wished: list[Candidate]
) -> None:
    decision = decide(snapshot, wished)
    assume(isinstance(decision, Wait | Refuse))
    assert isinstance(decision, Wait | Refuse)
    known = {blocker(snapshot, r) for r in snapshot.residents} - {None}
    assert set(decision.blockers) <= known
    if isinstance(decision, Wait):
        assert decision.blockers
        assert all(b.passing for b in decision.blockers)
    else:
        assert decision.reason
        possible = any(fits(candidate, snapshot.budgets, []) for candidate in wished)
        assert any(not b.passing for b in decision.blockers) == possible


@relaxed
@given(st.data(), snapshots, candidates)
def test_the_order_of_the_workers_does_not_matter(
    data: st.DataObject, snapshot: Snapshot, wished: list[Candidate]
) -> None:
    shuffled = replace(snapshot, residents=data.draw(st.permutations(snapshot.residents)))
    first, second = decide(snapshot, wished), decide(shuffled, wished)
    assert decide(snapshot, wished) == first
    assert type(first) is type(second)
    if isinstance(first, Wait | Refuse) and isinstance(second, Wait | Refuse):
        assert set(first.blockers) == set(second.blockers)
    else:
        assert first == second


@relaxed
@given(residents())
def test_total_adds_up(workers: list[Resident]) -> None:
    sums = total(workers)
    for name in RESOURCES:
        assert sums.get(name, 0) == sum(r.charges.get(name, 0) for r in workers)


# --- a ledger that follows the decisions ---


class LedgerMachine(RuleBasedStateMachine):
    """Wishes, loads and exits in any order, each decision carried out as the fleet would."""

    def __init__(self) -> None:
        super().__init__()
        self.budgets = {HOST: 100, "GPU-a": 60, "GPU-b": 60}
        self.workers: dict[str, Resident] = {}
        self.wished: list[Candidate] = []  # what stands in the queue, if anything
        self.made = 0

    def snapshot(self) -> Snapshot:
        return Snapshot(self.budgets, list(self.workers.values()))

    def change(self, worker: str, **facts: Any) -> None:
        self.workers[worker] = replace(self.workers[worker], **facts)

    def drawn(self, data: st.DataObject, **facts: Any) -> str | None:
        """Draw a worker of which all these facts are true."""
        names = [
            name
            for name, worker in sorted(self.workers.items())
            if all(getattr(worker, fact) == value for fact, value in facts.items())
        ]
        return data.draw(st.sampled_from(names)) if names else None

    @rule(size=st.integers(1, 70), host=st.integers(1, 40), on_gpu=st.booleans())
    def wish(self, size: int, host: int, on_gpu: bool) -> None:
        gpus = [gpu("GPU-a", size, host), gpu("GPU-b", size, host)]
        self.wished = gpus if on_gpu else [cpu(size)]
        self.act()

    @precondition(lambda self: self.wished)
    @rule()
    def act(self) -> None:
        decision = decide(self.snapshot(), self.wished)
        if isinstance(decision, Admit):
            self.made += 1
            name = f"w{self.made}"
            self.workers[name] = Resident(
                name, name, decision.candidate.charges, coming_up=True, used=False
            )
            self.wished = []
        elif isinstance(decision, Evict):
            for victim in decision.victims:
                worker = self.workers[victim.worker]
                assert may_go(self.snapshot(), worker)
                self.change(victim.worker, going_down=True)
            # With those on their way nobody else is asked to go for the same wish.
            again = decide(self.snapshot(), self.wished)
            assert isinstance(again, Evict)
            assert again.victims == ()
        elif isinstance(decision, Refuse):
            self.wished = []

    @rule(data=st.data())
    def become_ready(self, data: st.DataObject) -> None:
        if name := self.drawn(data, coming_up=True, going_down=False):
            self.change(name, coming_up=False, used=True, ready_for=OLD)

    @rule(data=st.data(), busy=st.booleans())
    def be_used(self, data: st.DataObject, busy: bool) -> None:
        if name := self.drawn(data, coming_up=False, going_down=False, lost=False):
            self.change(name, busy=busy)

    @rule(data=st.data(), pinned=st.booleans(), held=st.booleans())
    def be_held(self, data: st.DataObject, pinned: bool, held: bool) -> None:
        if name := self.drawn(data, going_down=False):
            self.change(name, pinned=pinned, leased_by=("john",) if held else ())

    @rule(data=st.data())
    def exit(self, data: st.DataObject) -> None:
        if name := self.drawn(data, going_down=True):
            del self.workers[name]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        if name := self.drawn(data):
            del self.workers[name]

    @rule(data=st.data())
    def leak(self, data: st.DataObject) -> None:
        if name := self.drawn(data, going_down=True):
            self.change(name, going_down=False, lost=True)

    @precondition(lambda self: any(w.going_down for w in self.workers.values()) and self.wished)
    @rule()
    def once_all_have_gone_who_made_them_go_is_let_in(self) -> None:
        before = decide(self.snapshot(), self.wished)
        for name in [name for name, worker in self.workers.items() if worker.going_down]:
            del self.workers[name]
        if isinstance(before, Evict) and not before.victims:
            made = self.made
            self.act()
            assert self.made == made + 1

    @invariant()
    def never_past_the_budget(self) -> None:
        for name, size in total(self.workers.values()).items():
            assert size <= self.budgets[name]


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(relaxed, max_examples=30, stateful_step_count=30)
