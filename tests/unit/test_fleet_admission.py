"""The queue for room: real fleet, slots and ledger on a machine that does as the test says."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from modelsup.supervisor.domain import Device, Footprint, FootprintKey, Options
from modelsup.supervisor.errors import DoesNotFit, Stopping
from modelsup.supervisor.fleet.fleet import Fleet
from modelsup.supervisor.fleet.ledger import Reserve
from modelsup.supervisor.fleet.slots import Defaults
from modelsup.supervisor.states import CHARGED, State

if TYPE_CHECKING:
    from collections.abc import Callable

    from modelsup.supervisor.domain import CatalogueEntry
    from modelsup.supervisor.fleet.worker import Worker
    from modelsup.worker.contract import LaunchSpec, StatusMessage

RAM = 100_000  # bytes, as the next
GPU = 1000
TURNS = 40  # of the event loop, in which all that was begun has come to rest


class Inline(ThreadPoolExecutor):
    """Runs what is given to it at once, so that a number of turns of the loop is enough."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@dataclass
class Held:
    """What a worker holds of a GPU."""

    bytes: int
    grown: int | None = None


@dataclass
class Back:
    """That it is free again."""

    freed: int
    verdict: str = "back"
    reason: str = ""


class Disk:
    """Sources and store: one version of each model, and what was learned of them."""

    def __init__(self) -> None:
        self.footprints: dict[FootprintKey, Footprint] = {}

    def versions(self, entry: CatalogueEntry) -> tuple[str, ...]:
        return ("1",)

    def discover(self) -> dict[str, str]:
        return {}

    def resolve(self, entry: CatalogueEntry, version: str | None) -> tuple[str, str | None]:
        return "1", f"/models/{entry.name}"

    def measure(self, path: str) -> tuple[int, str]:
        return 0, path

    def fingerprint(self, entry: CatalogueEntry) -> object:
        return "as it was"

    def footprint(self, key: FootprintKey) -> Footprint | None:
        return self.footprints.get(key)

    def put_footprint(self, key: FootprintKey, footprint: Footprint) -> None:
        self.footprints[key] = footprint

    def _forget(self, *values: object) -> None:
        pass

    put_model = delete_model = add_wanted = remove_wanted = _forget

    def contexts(self) -> tuple[()]:
        return ()

    put_lease = delete_lease = add_worker = remove_worker = _forget


class Site:
    """A fleet on the fake machine with GPUs; a process is ready at once, unless `slow`."""

    def __init__(self, machine: Any, gpus: int = 1, queue_timeout: float = 20.0) -> None:
        asyncio.get_running_loop().set_default_executor(Inline())
        self.machine = machine
        self.gpus = [Device(f"GPU-{n}", GPU) for n in range(gpus)]
        self.slow: set[str] = set()  # models whose test says when they are ready
        self.takes: dict[str, int] = {}  # model → bytes of its GPU that are measured
        self.handles: dict[str, Any] = {}  # model → its last process
        self.order: list[str] = []  # models, as their workers were started
        self._models: dict[int, str] = {}  # by pid
        services = replace(machine.services, launcher=self, devices=self)
        defaults = Defaults(queue_timeout=queue_timeout, prepare="off")
        reserve = Reserve(share=0.0, gpu_context=0, minimum_residence=0.0)
        disk: Any = Disk()
        self.fleet = Fleet(
            services, disk, disk, disk, self, disk, defaults, reserve, random.Random(0)
        )

    # launcher, devices and host

    async def spawn(self, spec: LaunchSpec, on_status: Callable[[StatusMessage], None]) -> Any:
        self.order.append(spec.model)
        handle = self.handles[spec.model] = await self.machine.spawn(spec, on_status)
        self._models[handle.pid] = spec.model
        if spec.model not in self.slow:
            asyncio.get_running_loop().call_soon(self.be_ready, spec.model)
        return handle

    def be_ready(self, model: str) -> None:
        self.handles[model].say("loading", "warming", "ready", memory={"steady": 1})

    def all(self) -> list[Device]:
        return self.gpus

    def choose(self, wanted: str | None) -> Device:
        return self.gpus[int(wanted.removeprefix("gpu:")) if wanted else 0]

    async def hold(self, uuid: str, pid: int, at_launch: Any = None) -> Any:
        return Held(self.takes.get(self._models.get(pid, ""), 0))

    async def reclaimed(self, hold: Held, expected: int | None = None) -> Any:
        return Back(hold.bytes)

    def memory_limit(self) -> int:
        return RAM

    def own_memory(self) -> int:
        return 0

    # what tests do

    def add(self, **sizes: int) -> None:
        """Put models into the catalogue."""
        for name, size in sizes.items():
            self.put(name, size)

    def put(self, name: str, size: int, **options: Any) -> None:
        self.fleet.put_model(name, None, "echo", Options(gpu_memory=size, ram=1, **options))

    def ask(self, model: str) -> asyncio.Task[Worker]:
        """Ask for a model as a request does."""
        return asyncio.get_running_loop().create_task(self.fleet.ensure_ready(model))

    def swap(self, client: str, model: str) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.fleet.swap(client, model))

    async def busy(self, model: str) -> Worker:
        """Load a model, and let a request run there."""
        worker = await self.ask(model)
        worker.begin()
        return worker

    async def rest(self) -> None:
        """Let all that was begun go on until it waits for something; check the books."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
            self.check()

    def check(self) -> None:
        """The sum of the charges never passes the budget, and no worker is on two GPUs."""
        charged: Counter[str] = Counter()
        for worker in self.fleet.workers():
            if worker.state in CHARGED:
                charged.update(worker.charges)
                assert len(worker.charges) == 2
        budgets = {"host": RAM, **{gpu.uuid: gpu.total_memory for gpu in self.gpus}}
        assert all(charged[name] <= budget for name, budget in budgets.items()), charged

    @property
    def queue(self) -> tuple[str, ...]:
        return self.fleet.books().queue

    async def until_queued(self, *models: str) -> None:
        """Wait until these stand in line; what they wait for may take its time."""
        while self.queue != models:
            await self.rest()


@pytest.fixture
def on_site(machine: Any) -> Callable[..., None]:
    """Run a test with a fresh site; everything is unloaded after it."""

    def run(story: Callable[[Site], Any], **settings: Any) -> None:
        async def told() -> None:
            site = Site(machine, **settings)
            await story(site)
            await site.fleet.stop_all(0)

        machine.run(told())

    return run


def test_many_wishes_are_one_ticket(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600)
        a = await site.busy("a")
        wishes = [site.ask("b") for _ in range(20)]
        await site.rest()
        assert site.queue == ("b",)
        assert site.fleet.model("b").state == "queued"
        a.end(completed=True)
        assert len({await wish for wish in wishes}) == 1
        assert site.order == ["a", "b"]

    on_site(story)


def test_higher_priority_goes_first_then_the_oldest(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, low=600, later=600)
        site.put("high", 600, priority=5)
        a = await site.busy("a")
        wishes = [site.ask(name) for name in ("low", "later", "high")]
        await site.rest()
        assert site.queue == ("high", "low", "later")
        a.end(completed=True)
        await asyncio.gather(*wishes)
        assert site.order == ["a", "high", "low", "later"]

    on_site(story)


def test_a_large_model_is_overtaken_only_for_a_while(on_site: Callable[..., None]) -> None:
    """As in llama-swap, where those that fitted beside what was loaded starved the others."""

    async def story(site: Site) -> None:
        site.add(a=600, large=900, small=200, late=200)
        a = await site.busy("a")
        large = site.ask("large")
        await site.until_queued("large")
        small = await site.busy("small")
        site.machine.now += 2
        late = site.ask("late")
        await site.rest()
        assert site.queue == ("large", "late")
        small.end(completed=True)
        a.end(completed=True)
        await asyncio.gather(large, late)
        assert site.order == ["a", "small", "large", "late"]

    on_site(story)


def test_room_is_taken_in_the_moment_in_which_a_model_is_idle(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600)
        a = await site.busy("a")
        b = site.ask("b")
        await site.until_queued("b")
        a.begin()
        a.end(completed=True)
        await site.rest()
        assert a.state is State.READY
        a.end(completed=True)
        await site.rest()
        assert a.state is State.GONE
        assert site.fleet.ready("a") is None
        again = site.ask("a")
        assert (await b).key.model == "b"
        assert await again is not a

    on_site(story)


def test_a_wait_for_one_gpu_holds_up_nobody_on_another(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        for name, gpu in (("a", 0), ("b", 0), ("c", 1), ("d", 1)):
            site.put(name, 600, device=f"gpu:{gpu}")
        a = await site.busy("a")
        await site.ask("c")
        b = site.ask("b")
        await site.until_queued("b")
        site.machine.now += 2
        assert (await site.ask("d")).spec.device == "GPU-1"  # in place of c
        assert site.queue == ("b",)
        a.end(completed=True)
        assert (await b).spec.device == "GPU-0"

    on_site(story, gpus=2)


def test_what_cannot_fit_is_refused_wherever_it_stands_in_line(
    on_site: Callable[..., None],
) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600, huge=1001)
        await site.busy("a")
        b = site.ask("b")
        await site.until_queued("b")
        site.machine.now += 2
        with pytest.raises(DoesNotFit, match="huge does not fit: it needs 0 MB of GPU-0"):
            await site.ask("huge")
        assert site.queue == ("b",)
        b.cancel()
        await site.rest()
        assert site.queue == ()

    on_site(story)


def test_all_pinned_is_refused_at_once(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.put("a", 600, pin=True)
        site.add(b=600)
        await site.ask("a")
        with pytest.raises(DoesNotFit, match="a is pinned") as refused:
            await site.ask("b")
        assert refused.value.plan["fits"] == "no"
        assert [b["model"] for b in refused.value.plan["blockers"]] == ["a"]

    on_site(story)


def test_the_wait_for_room_ends(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600)
        await site.busy("a")
        with pytest.raises(DoesNotFit, match=r"no room was found .*a is answering requests"):
            await site.ask("b")
        assert site.queue == ()
        assert site.fleet.model("b").state == "unloaded"

    on_site(story, queue_timeout=0.05)


@pytest.mark.parametrize("how", ["unload", "stop"])
def test_who_waits_for_room_is_told_that_it_is_over(on_site: Callable[..., None], how: str) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600)
        await site.busy("a")
        wishes = [site.ask("b") for _ in range(2)]
        await site.until_queued("b")
        if how == "unload":
            (receipt,) = await site.fleet.unload("b")
            assert (receipt.worker, receipt.outcome) == ("", "drained")
        else:
            await site.fleet.stop_all(0)
        for wish in wishes:
            with pytest.raises(Stopping):
                await wish
        assert site.queue == ()
        assert site.order == ["a"]

    on_site(story)


def test_a_restart_waits_in_line(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=600, b=600)
        await site.ask("a")
        site.handles["a"].end(signal=11)
        b = await site.busy("b")
        await site.until_queued("a")
        assert site.order == ["a", "b"]
        b.end(completed=True)
        await site.ask("a")
        assert site.order == ["a", "b", "a"]

    on_site(story)


def test_a_restart_without_room_is_given_up_until_somebody_asks(
    on_site: Callable[..., None],
) -> None:
    async def story(site: Site) -> None:
        site.add(a=600)
        site.put("b", 600, pin=True)
        await site.ask("a")
        site.handles["a"].end(signal=11)
        await site.ask("b")
        while site.fleet.model("a").state != "unloaded":
            await site.rest()
        with pytest.raises(DoesNotFit, match="b is pinned"):
            await site.ask("a")
        await site.fleet.unload("b")
        assert (await site.ask("a")).key.model == "a"

    on_site(story)


def test_each_of_two_swaps_to_one_model_may_let_its_own_old_one_go(
    on_site: Callable[..., None],
) -> None:
    async def story(site: Site) -> None:
        site.add(a=300, b=300, c=400, new=700)
        await site.swap("anna", "a")
        await site.swap("otto", "b")
        c = await site.busy("c")
        annas, ottos = site.swap("anna", "new"), site.swap("otto", "new")
        await site.until_queued("new")
        annas.cancel()
        await site.rest()
        assert site.queue == ("new",)
        c.end(completed=True)
        swapped = await ottos
        assert swapped.receipt is not None
        assert swapped.receipt.model == "b"
        assert {w.model: w.clients for w in site.fleet.workers()} == {
            "a": ("anna",),
            "new": ("otto",),
        }

    on_site(story)


def test_a_measured_worker_is_charged_no_more_than_is_free(on_site: Callable[..., None]) -> None:
    async def story(site: Site) -> None:
        site.add(a=200, b=600)
        site.takes = {"a": 700}
        await site.busy("b")
        await site.ask("a")
        await site.rest()
        charges = {w.model: w.charges["GPU-0"] for w in site.fleet.workers()}
        assert charges == {"a": 400, "b": 600}
        await site.fleet.unload("a")
        plan = await site.fleet.plan("a")
        assert plan.charges["GPU-0"] == 700

    on_site(story)


MODELS = {"a": 100, "b": 300, "c": 400, "d": 500, "e": 700, "f": 1000}
STEPS = st.tuples(
    st.sampled_from(["ask", "ask", "ask", "ready", "end", "crash", "unload", "swap", "give up"]),
    st.sampled_from(sorted(MODELS)),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(STEPS, max_size=40), st.dictionaries(st.sampled_from("abcdef"), st.integers(1, GPU))
)
def test_the_charges_never_pass_the_budget(
    on_site: Callable[..., None], steps: list[tuple[str, str]], takes: dict[str, int]
) -> None:
    """Whatever happens in whatever order; and in the end nobody waits for what is there."""

    async def story(site: Site) -> None:
        site.add(**MODELS)
        site.slow, site.takes = set(MODELS), takes
        wishes: list[asyncio.Task[Any]] = []
        running: list[Worker] = []

        async def request(model: str) -> None:
            worker = await site.fleet.ensure_ready(model)
            worker.begin()
            running.append(worker)

        def go_on(model: str) -> None:
            handle = site.handles.get(model)
            if handle is not None:
                site.be_ready(model)

        for step, model in steps:
            if step == "ask":
                wishes.append(asyncio.ensure_future(request(model)))
            elif step == "ready":
                go_on(model)
            elif step == "end" and running:
                running.pop(0).end(completed=True)
            elif step == "crash" and model in site.handles:
                site.handles[model].end(signal=11)
            elif step == "unload":
                wishes.append(asyncio.ensure_future(site.fleet.unload(model, force=True)))
            elif step == "swap":
                wishes.append(site.swap(f"client-{model < 'd'}", model))
            elif step == "give up" and wishes:
                wishes.pop(0).cancel()
            await site.rest()
        site.slow.clear()
        for _ in range(3 * len(MODELS)):
            for model in MODELS:
                go_on(model)
            while running:
                running.pop().end(completed=True)
            await site.rest()
        assert site.queue == ()
        for client in site.fleet.clients():
            await site.fleet.release(client.id)
        for wish in wishes:
            wish.cancel()
        await asyncio.gather(*wishes, return_exceptions=True)

    on_site(story, gpus=2)
