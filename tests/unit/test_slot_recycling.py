"""A worn worker is replaced: by one that is ready first, or after its end."""

from __future__ import annotations

import asyncio
from typing import Any

from modelsup.supervisor.states import State


async def recycled(workshop: Any) -> tuple[Any, Any]:
    """Load, and find the worker worn; return its process and that of its successor."""
    old = await workshop.ready()
    workshop.slot.recycle(workshop.slot.current, "it is worn")
    return old, await workshop.machine.handles.get()


def test_successor_takes_over_once_it_is_ready(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        old, new = await recycled(workshop)
        worker = workshop.slot.current
        worker.begin()
        assert workshop.slot.state == "ready"
        new.say("loading", "warming", "ready")
        successor = workshop.slot.current
        assert (worker.state, successor.state) == (State.DRAINING, State.READY)
        assert await workshop.slot.ensure_ready() is successor
        worker.end(completed=True)
        await worker.until_ended()
        assert (old.calls, new.calls) == (["terminate", "dispose"], [])
        while workshop.slot.leaving:
            await workshop.changed()
        assert workshop.slot.workers == [successor]
        assert set(workshop.states) == {"starting", "loading", "warming", "ready"}

    machine.run(story())


def test_worker_is_recycled_once(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        _, new = await recycled(workshop)
        worker = workshop.slot.current
        workshop.slot.recycle(worker, "still")
        new.say("loading", "warming", "ready")
        workshop.slot.recycle(worker, "late news")
        await worker.until_ended()
        assert machine.spawned == 2

    machine.run(story())


def test_without_room_the_next_one_starts_after_its_end(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        workshop.roomy = False
        await workshop.ready()
        worker = workshop.slot.current
        worker.begin()
        workshop.slot.recycle(worker, "it is worn")
        wish = asyncio.ensure_future(workshop.slot.ensure_ready())
        assert (worker.state, machine.spawned) == (State.DRAINING, 1)
        worker.end(completed=True)
        new = await machine.handles.get()
        await workshop.until("loading")
        new.say("loading", "warming", "ready")
        assert await wish is workshop.slot.current is not worker
        assert "unloaded" not in workshop.states
        assert workshop.slot.restarts == 0

    machine.run(story())


def test_worker_stays_when_its_files_are_gone(machine: Any, workshop: Any) -> None:
    """Without room for two it once ended, and nothing could be loaded in its place."""

    async def story() -> None:
        old = await workshop.ready()
        worker, workshop.roomy = workshop.slot.current, False
        workshop.files, as_they_were = (), workshop.files
        workshop.slot.recycle(worker, "it is worn")
        assert (worker.state, machine.spawned, old.calls) == (State.READY, 1, [])
        workshop.files = as_they_were
        workshop.slot.recycle(worker, "it is worn")
        assert worker.state is State.DRAINING
        await machine.handles.get()

    machine.run(story())


def test_worker_stays_when_its_successor_cannot_be_loaded(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        old, new = await recycled(workshop)
        worker, successor = workshop.slot.current, workshop.slot.successor
        new.end(code=1)
        await successor.until_ended()
        while workshop.slot.successor is not None:
            await workshop.changed()
        assert (workshop.slot.current, workshop.slot.state) == (worker, "ready")
        assert (workshop.slot.failure, old.calls) == (None, [])

    machine.run(story())


def test_successor_stands_in_for_a_worker_that_crashes(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        old, new = await recycled(workshop)
        successor = workshop.slot.successor
        old.end(signal=11)
        while workshop.slot.current is not successor:
            await workshop.changed()
        wish = asyncio.ensure_future(workshop.slot.ensure_ready())
        new.say("loading", "warming", "ready")
        assert await wish is successor
        assert (machine.spawned, workshop.slot.restarts) == (2, 0)

    machine.run(story())


def test_unload_ends_both(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        old, new = await recycled(workshop)
        worker = workshop.slot.current
        receipt = await workshop.slot.stop(30)
        assert receipt.worker == worker.uid
        assert (old.calls, new.calls) == (["terminate", "dispose"], ["terminate", "dispose"])
        assert workshop.slot.empty

    machine.run(story())


def test_unload_waits_for_the_one_that_leaves(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        old, new = await recycled(workshop)
        worker = workshop.slot.current
        worker.begin()
        new.say("loading", "warming", "ready")
        stop = asyncio.ensure_future(workshop.slot.stop(30))
        await workshop.until("unloaded")
        assert not stop.done()
        assert not workshop.slot.empty
        worker.end(completed=True)
        assert (await stop).worker != worker.uid
        assert old.calls == ["terminate", "dispose"]
        assert workshop.slot.empty

    machine.run(story())
