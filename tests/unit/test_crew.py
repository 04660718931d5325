"""Who gets a worker, and when: first come first served, as many as may, and nobody forgotten."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.domain import Options
from modelsup.supervisor.errors import QueueFull, Stopping
from modelsup.supervisor.fleet.crew import Crew, Flow, Queue
from modelsup.supervisor.fleet.traffic import Traffic


class Worker:
    """A worker that counts its requests, and tells its crew of their end."""

    clock = itertools.count(1)

    def __init__(self, crew: Crew) -> None:
        self.traffic = Traffic(0.0)
        self._crew = crew

    def begin(self) -> None:
        self.traffic.begin()

    def end(self, completed: bool) -> None:
        self.traffic.end(float(next(self.clock)), completed)
        self._crew.hand_over()


class Bench:
    """A crew of ready workers, each with one request at once unless told otherwise."""

    def __init__(self, workers: int = 1, concurrency: int = 1, queue: int = 1000) -> None:
        self.crew = Crew(Queue("m"), Flow(concurrency, queue))
        self.workers: list[Any] = [Worker(self.crew) for _ in range(workers)]
        self.crew.refresh(self.workers)

    @property
    def in_flight(self) -> list[int]:
        return [worker.traffic.in_flight for worker in self.workers]

    async def line_up(self, count: int) -> list[asyncio.Task[Any]]:
        """Let so many requests wait for their turn."""
        tasks = [asyncio.create_task(self.crew.until_turn()) for _ in range(count)]
        await asyncio.sleep(0)
        return tasks


def run(story: Any) -> None:
    asyncio.run(asyncio.wait_for(story, 20))


def test_a_request_waits_for_its_turn() -> None:
    async def story() -> None:
        it = Bench()
        worker = it.crew.take()
        assert it.crew.take() is None
        turns = await it.line_up(2)
        assert it.crew.waiting == 2
        for turn in turns:
            assert not turn.done()
            worker.end(completed=True)  # type: ignore[union-attr]
            assert await turn is worker
            assert it.in_flight == [1]
        assert it.crew.waiting == 0

    run(story())


def test_nobody_overtakes_one_who_waits() -> None:
    async def story() -> None:
        it = Bench(concurrency=2)
        first, _ = it.crew.take(), it.crew.take()
        (turn,) = await it.line_up(1)
        first.end(completed=True)  # type: ignore[union-attr]
        assert it.crew.take() is None  # the place is that of the one who waits
        assert await turn is first

    run(story())


def test_any_number_goes_to_a_worker_without_a_limit() -> None:
    async def story() -> None:
        it = Bench(concurrency=0, queue=3)
        assert [it.crew.take() for _ in range(5)] == [*it.workers * 4, None]

    run(story())


def test_the_worker_with_the_least_to_do_gets_the_next_one() -> None:
    async def story() -> None:
        it = Bench(workers=3, concurrency=2)
        for _ in range(5):
            assert it.crew.take() is not None
        assert sorted(it.in_flight) == [1, 2, 2]
        it.crew.take()
        assert it.crew.take() is None
        (turn,) = await it.line_up(1)
        it.workers[1].end(completed=True)
        assert await turn is it.workers[1]

    run(story())


def test_one_who_leaves_gives_its_turn_to_the_next() -> None:
    async def story() -> None:
        it = Bench()
        worker = it.crew.take()
        leaves, stays = await it.line_up(2)
        leaves.cancel()
        worker.end(completed=True)  # type: ignore[union-attr]
        assert await stays is worker
        assert it.in_flight == [1]

    run(story())


def test_one_who_leaves_in_the_moment_of_its_turn_ends_what_it_began() -> None:
    async def story() -> None:
        it = Bench()
        worker = it.crew.take()
        leaves, stays = await it.line_up(2)
        worker.end(completed=True)  # type: ignore[union-attr]
        leaves.cancel()
        assert await stays is worker
        assert it.in_flight == [1]

    run(story())


def test_all_look_again_once_no_worker_is_ready() -> None:
    async def story() -> None:
        it = Bench()
        it.crew.take()
        turns = await it.line_up(2)
        it.crew.refresh(())
        assert await asyncio.gather(*turns) == [None, None]
        assert await it.crew.until_turn() is None

    run(story())


def test_a_worker_that_becomes_ready_serves_those_who_wait() -> None:
    async def story() -> None:
        it = Bench()
        it.crew.take()
        turns = await it.line_up(2)
        other: Any = Worker(it.crew)
        it.crew.refresh((*it.workers, other))
        assert await turns[0] is other
        it.crew.flow = Flow(concurrency=2)
        it.crew.refresh((*it.workers, other))
        assert await turns[1] is it.workers[0]

    run(story())


def test_all_who_wait_can_be_dismissed() -> None:
    async def story() -> None:
        it = Bench()
        worker = it.crew.take()
        (turn,) = await it.line_up(1)
        it.crew.dismiss(Stopping("unloaded"))
        with pytest.raises(Stopping):
            await turn
        worker.end(completed=True)  # type: ignore[union-attr]
        assert it.crew.take() is worker

    run(story())


def test_the_queue_of_a_model_is_bounded() -> None:
    queue = Queue("m")
    with queue.place(2), queue.place(2):
        with pytest.raises(QueueFull, match="model m is full: 2 requests wait") as full:
            queue.place(2).__enter__()
        assert (full.value.model, full.value.retry_after) == ("m", 1.0)
        assert queue.waiting == 2
    assert queue.waiting == 0
    with queue.place(1):
        assert queue.waiting == 1


def test_how_many_may_wait() -> None:
    assert Flow(concurrency=2, queue=10).most(workers=3, in_flight=6) == 10
    assert Flow(concurrency=2, queue=10).most(workers=0, in_flight=0) == 12
    assert Flow(concurrency=0, queue=10).most(workers=1, in_flight=11) == 0
    assert Flow.of(Options(), 7) == Flow(0, 7)
    assert Flow.of(Options(max_queue=0, max_concurrency=3), 7) == Flow(3, 0)


@given(st.integers(1, 6), st.lists(st.one_of(st.just("ask"), st.integers(0, 5)), max_size=80))
def test_requests_are_spread_evenly(workers: int, story: list[Any]) -> None:
    """Each goes to one of those that have the fewest, whatever ends when."""
    it = Bench(workers, concurrency=0)
    for step in story:
        if step == "ask":
            fewest = min(it.in_flight)
            worker: Any = it.crew.take()
            assert worker.traffic.in_flight == fewest + 1
        elif it.in_flight[step % workers]:
            it.workers[step % workers].end(completed=True)


@given(st.integers(1, 6), st.integers(0, 80))
def test_loads_differ_by_one_at_most(workers: int, requests: int) -> None:
    it = Bench(workers, concurrency=0)
    for _ in range(requests):
        assert it.crew.take() is not None
    assert max(it.in_flight) - min(it.in_flight) <= 1


def test_those_with_as_few_take_turns() -> None:
    """One request at a time goes round."""
    it = Bench(workers=3, concurrency=0)
    given_out = []
    for _ in range(6):
        worker: Any = it.crew.take()
        worker.end(completed=True)
        given_out.append(worker)
    assert given_out == it.workers * 2


def test_all_wait_for_the_first_that_is_ready() -> None:
    async def story() -> None:
        it = Bench(workers=0)
        waiting = [asyncio.create_task(it.crew.until_ready()) for _ in range(2)]
        await asyncio.sleep(0)
        it.crew.refresh((cast("Any", Worker(it.crew)),))
        await asyncio.gather(*waiting)
        it.crew.refresh(())
        later = asyncio.create_task(it.crew.until_ready())
        await asyncio.sleep(0)
        assert not later.done()
        later.cancel()

    run(story())
