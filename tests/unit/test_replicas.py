"""How many workers a model has, whatever happens: the real fleet, on a machine as the test says."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modelsup.supervisor.domain import Options, Receipt, SlotKey
from modelsup.supervisor.errors import LoadFailed, NotLoaded
from modelsup.supervisor.fleet.replicas import wanted
from modelsup.supervisor.http.statistics import together
from modelsup.supervisor.states import State
from modelsup.worker.statistics import Statistics

from tests.unit.conftest import Machine
from tests.unit.test_fleet_admission import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.supervisor.fleet.worker import Worker

SIZE = 200  # of a worker; five fit onto the GPU


class Stage(Site):
    """A site on which each process is ready by itself, also where a model has several."""

    def __init__(self, machine: Any) -> None:
        super().__init__(machine)
        self.processes: dict[str, Any] = {}  # by worker
        self.put("m", SIZE, replicas=3)

    async def spawn(self, spec: Any, on_status: Any) -> Any:
        handle = self.processes[spec.uid] = await self.machine.spawn(spec, on_status)
        self._models[handle.pid] = spec.model
        if spec.model not in self.slow:
            asyncio.get_running_loop().call_soon(self.get_ready, spec.uid)
        return handle

    def get_ready(self, uid: str) -> None:
        if not self.processes[uid].ended:
            self.processes[uid].say("loading", "warming", "ready", memory={"steady": 1})

    def crash(self, worker: Worker) -> None:
        self.processes[worker.uid].end(signal=9)

    @property
    def ready(self) -> list[Worker]:
        return list(self.fleet.serving("m"))


def on_stage(story: Callable[[Stage], Any]) -> None:
    """Run a test with a fresh stage; everything is unloaded after it."""
    machine = Machine()

    async def told() -> None:
        stage = Stage(machine)
        await story(stage)
        await stage.fleet.stop_all(0)

    machine.run(told())


def test_a_private_model_has_one_worker() -> None:
    assert wanted(SlotKey("m", "1"), Options()) == 1
    assert wanted(SlotKey("m", "1"), Options(replicas=4)) == 4
    assert wanted(SlotKey("m", "1", "john"), Options(replicas=4)) == 1


def test_all_replicas_of_a_slot_key_have_one_crew() -> None:
    key = SlotKey("m", "1", "john")
    assert key.crew is key
    assert SlotKey("m", "1", "john", 3).crew == key


def test_a_receipt_of_several_is_the_sum_and_the_worst() -> None:
    one = Receipt("m", "w1", "drained", 1, 0, 10, {"a": 1}, total=0.5, drain=0.25)
    other = Receipt("m", "w2", "forced", 2, 3, 20, {"a": 2, "b": 4}, False, total=0.25, reason="?")
    assert Receipt.together([one]) == one
    whole = Receipt.together([one, other])
    assert (whole.outcome, whole.in_flight_completed, whole.in_flight_aborted) == ("forced", 3, 3)
    assert (whole.freed_host, whole.freed_gpu) == (30, {"a": 3, "b": 4})
    assert (whole.verified, whole.reason) == (False, "?")
    assert (whole.drain, whole.total) == (0.25, 0.5)


def test_the_statistics_of_several_are_the_sums() -> None:
    one, other, whole = Statistics(), Statistics(), Statistics()
    for part, sizes in ((one, (1, 4, 4)), (other, (4, 8))):
        for rows in sizes:
            for each in (part, whole):
                each.executed(rows, 0.25, 1.0, 0.5)
                each.rows += rows
                each.succeeded += 1
    told = together([each.to_v2("m", "7", waiting=0) for each in (one, other)])
    expected = whole.to_v2("m", "7", waiting=0)
    assert told | {"last_inference": 0} == expected | {"last_inference": 0}
    assert told["last_inference"] == other.to_v2("m", "7", waiting=0)["last_inference"]


def test_requests_go_round_and_never_to_the_dead() -> None:
    async def story(stage: Stage) -> None:
        await stage.fleet.load("m")
        first, second, third = stage.ready
        stage.crash(second)
        await second.until_ended()
        for _ in range(6):
            worker: Any = stage.fleet.take("m")
            assert worker is not second
            stage.machine.now += 1
            worker.end(completed=True)
        assert (first.traffic.total, third.traffic.total) == (3, 3)

    on_stage(story)


def test_a_worker_found_dead_by_a_request_gets_no_other_one() -> None:
    async def story(stage: Stage) -> None:
        await stage.fleet.load("m")
        found: Any = stage.fleet.take("m")
        stage.processes[found.uid].upstream.refused = True
        found.end(completed=False)
        assert found.state is State.READY  # its end is not known yet
        assert found not in stage.ready
        assert len(stage.ready) == 2

    on_stage(story)


def test_worn_workers_are_replaced_one_after_another() -> None:
    async def story(stage: Stage) -> None:
        await stage.fleet.load("m")
        slots = stage.fleet._slots.roster.crew(SlotKey("m", "1"))
        stage.slow.add("m")
        for slot in slots:
            slot.recycle(slot.current, "it is worn")  # type: ignore[arg-type]
        await stage.rest()
        coming = [slot.successor for slot in slots if slot.successor]
        assert len(coming) == 1
        assert len(stage.ready) == 3
        stage.get_ready(coming[0].uid)
        await stage.rest()
        assert coming[0] in stage.ready

    on_stage(story)


def test_what_failed_beside_others_does_not_outlive_them() -> None:
    """The next request loads the model anew."""

    async def story(stage: Stage) -> None:
        await stage.fleet.load("m", options=Options(replicas=1))
        stage.slow.add("m")
        loading = asyncio.create_task(stage.fleet.scale("m", 2))
        await stage.rest()
        (new,) = [w for w in stage.fleet._slots.workers() if w.state is not State.READY]
        stage.crash(new)
        with pytest.raises(LoadFailed):
            await loading
        await stage.rest()
        assert len(stage.ready) == 1  # it is not tried again by itself
        await stage.fleet.unload("m")
        assert stage.fleet.model("m").state == "unloaded"
        stage.slow.clear()
        assert (await stage.fleet.ensure_ready("m")).serves
        await stage.rest()
        assert len(stage.ready) == 2

    on_stage(story)


def test_a_failed_replica_is_shown_beside_those_that_serve() -> None:
    async def story(stage: Stage) -> None:
        await stage.fleet.load("m")
        assert stage.fleet.model("m").failure is None
        stage.crash(stage.ready[1])
        await stage.rest()
        shown = stage.fleet.model("m")
        assert (shown.state, shown.ready, shown.replicas) == ("ready", 2, 3)
        assert shown.failure is not None

    on_stage(story)


@pytest.mark.parametrize("size", [3 * SIZE, 4 * SIZE])  # one of three has to go for it, or two
def test_a_swap_gives_the_receipt_of_all_whenever_they_went(size: int) -> None:
    async def story(stage: Stage) -> None:
        stage.takes["m"] = SIZE
        stage.put("large", size)
        await stage.fleet.swap("john", "m")
        await stage.rest()
        assert len(stage.ready) == 3
        swapped = await stage.fleet.swap("john", "large")
        assert swapped.receipt.freed_gpu == {"GPU-0": 3 * SIZE}
        assert stage.fleet.model("m").state == "unloaded"

    on_stage(story)


DEEDS = ("load", "unload", "begin", "end", "crash", "swap", "release", "other", "rest")
STEPS = st.one_of(st.sampled_from(DEEDS), st.integers(1, 5))


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=40), st.randoms(use_true_random=False))
def test_whatever_happens(steps: list[Any], rng: Any) -> None:
    """No worker that is too many ends before its last request, and all fits at any time.

    In the end there are as many workers as there are to be, and nothing is left of them.
    """

    async def story(stage: Stage) -> None:
        stage.put("other", 3 * SIZE)
        running: list[Worker] = []
        tasks: set[asyncio.Task[Any]] = set()
        forced: set[Worker] = set()  # may end before its requests

        def spawn(work: Any) -> None:
            task = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            tasks.add(task)

        for step in steps:
            match step:
                case "load":
                    spawn(stage.fleet.load("m"))
                case "unload":
                    forced |= {*running, *stage.ready}
                    spawn(stage.fleet.unload("m", force=True))
                case "begin":
                    worker: Any = stage.fleet.take("m")
                    if worker is not None:
                        assert worker.serves
                        running.append(worker)
                case "end" if running:
                    running.pop(rng.randrange(len(running))).end(completed=True)
                case "crash" if stage.ready:
                    victim = rng.choice(stage.ready)
                    forced.add(victim)
                    stage.crash(victim)
                case "swap":
                    spawn(stage.fleet.swap("john", "m"))
                case "release":
                    spawn(stage.fleet.release("john"))
                case "other":
                    spawn(stage.fleet.ensure_ready("other"))
                case "rest":
                    await stage.rest()
                case int():
                    spawn(stage.fleet.scale("m", step))
            stage.machine.now += 1
            stage.check()
            gone = {State.STOPPING, State.GONE, State.FAILED}
            assert not [w for w in running if w.state in gone and w not in forced]
        while running:
            running.pop().end(completed=True)
        await stage.rest()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(NotLoaded):
            await stage.fleet.unload("other")
        loaded: Any = await stage.fleet.load("m")
        await stage.rest()
        assert len(loaded.workers) == len(stage.ready) == stage.fleet.model("m").replicas
        assert [w.uid for w in stage.ready if not w.serves] == []
        await stage.fleet.unload("m", force=True)
        await stage.rest()
        assert stage.fleet.workers() == []
        assert stage.fleet._slots.roster.all() == []

    on_stage(story)
