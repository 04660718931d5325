"""The place of one model: wishes join, crashes restart, idleness unloads."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.domain import CatalogueEntry, Options
from modelsup.supervisor.errors import LoadFailed, Stopping
from modelsup.supervisor.fleet.services import Timeouts

if TYPE_CHECKING:
    from modelsup.supervisor.fleet.worker import Worker


def wish(workshop: Any) -> asyncio.Task[Worker]:
    return asyncio.get_running_loop().create_task(workshop.slot.ensure_ready())


async def loading(workshop: Any) -> Any:
    """Wait for the process of a load that was wished for."""
    handle = await workshop.machine.handles.get()
    await workshop.until("loading")
    return handle


def test_wishes_join_one_load(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        wishes = [wish(workshop) for _ in range(5)]
        handle = await loading(workshop)
        wishes.append(wish(workshop))
        handle.say("warming", "ready")
        workers = {await one for one in wishes}
        assert workers == {workshop.slot.current}
        assert await workshop.slot.ensure_ready() in workers
        assert (machine.spawned, workshop.slot.waiting) == (1, 0)

    machine.run(story())


def test_the_last_wish_withdrawn_ends_the_load(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        first, second = wish(workshop), wish(workshop)
        handle = await loading(workshop)
        first.cancel()
        await asyncio.wait({first})
        assert workshop.slot.state == "loading"
        second.cancel()
        await workshop.until("unloaded")
        assert handle.calls == ["terminate", "dispose"]
        assert workshop.slot.empty

    machine.run(story())


def test_a_withdrawn_wish_does_not_end_an_explicit_load(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        workshop.slot.explicit = True
        one = wish(workshop)
        handle = await loading(workshop)
        one.cancel()
        await asyncio.wait({one})
        handle.say("warming", "ready")
        assert workshop.slot.state == "ready"

    machine.run(story())


def test_a_wish_during_a_withdrawal_gets_a_new_worker(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        one = wish(workshop)
        old = await loading(workshop)
        old.ignored = {"terminate"}
        one.cancel()
        await workshop.until("stopping")
        late = wish(workshop)
        await asyncio.sleep(0)
        assert machine.spawned == 1
        old.end(code=0)
        (await loading(workshop)).say("warming", "ready")
        assert (await late).uid == "w2"

    machine.run(story())


def test_a_wish_right_after_the_end_of_a_load_was_asked_for(machine: Any, workshop: Any) -> None:
    """It once joined that load, and failed with it."""

    async def story() -> None:
        one = wish(workshop)
        await loading(workshop)
        workshop.slot.current.request_stop(0)
        late = wish(workshop)
        with pytest.raises(Stopping):
            await one
        (await loading(workshop)).say("warming", "ready")
        assert (await late).uid == "w2"

    machine.run(story())


@pytest.mark.parametrize("state", ["draining", "stopping"])
def test_a_wish_during_an_unload_waits_for_its_end(machine: Any, workshop: Any, state: str) -> None:
    """A second worker beside the one that goes would need the memory of both."""

    async def story() -> None:
        old = await workshop.ready()
        old.ignored = {"terminate"}
        worker = workshop.slot.current
        worker.begin()
        stop = asyncio.ensure_future(workshop.slot.stop(30 if state == "draining" else 0))
        await workshop.until(state)
        late = wish(workshop)
        await asyncio.sleep(0)
        assert machine.spawned == 1
        worker.end(completed=True)
        old.end(code=0)
        receipt = await stop
        assert receipt.worker == "w1"
        (await loading(workshop)).say("warming", "ready")
        assert (await late).uid == "w2"

    machine.run(story())


def test_an_unload_while_loading_is_told_to_who_waits(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        one = wish(workshop)
        await loading(workshop)
        receipt = await workshop.slot.stop(30)
        assert receipt.outcome == "drained"
        with pytest.raises(Stopping):
            await one
        assert workshop.slot.state == "unloaded"

    machine.run(story())


def test_a_failed_load_is_not_tried_again_until_the_files_change(
    machine: Any, workshop: Any
) -> None:
    async def story() -> None:
        one = wish(workshop)
        (await loading(workshop)).end(signal=11)
        with pytest.raises(LoadFailed, match="could not be loaded"):
            await one
        with pytest.raises(LoadFailed, match="has failed"):
            await workshop.slot.ensure_ready()
        assert (machine.spawned, workshop.slot.state) == (1, "failed")
        workshop.files = "changed"
        again = wish(workshop)
        (await loading(workshop)).say("warming", "ready")
        assert (await again).uid == "w2"

    machine.run(story())


def test_a_failed_load_is_tried_again_when_told_to_forget(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        one = wish(workshop)
        (await loading(workshop)).end(signal=11)
        await asyncio.wait({one})
        assert isinstance(one.exception(), LoadFailed)
        workshop.slot.forget_failure()
        again = wish(workshop)
        (await loading(workshop)).say("warming", "ready")
        assert (await again).uid == "w2"

    machine.run(story())


def test_a_crash_is_followed_by_a_new_worker(machine: Any, workshop: Any) -> None:
    """A request that comes meanwhile waits for it."""

    async def story() -> None:
        (await workshop.ready()).end(signal=11)
        await workshop.until("restarting")
        late = wish(workshop)
        (await loading(workshop)).say("warming", "ready")
        worker = await late
        assert (worker.uid, worker.restarts) == ("w2", 1)

    machine.run(story())


def test_no_restart_after_an_unload(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        (await workshop.ready()).end(signal=11)
        await workshop.until("restarting")
        assert await workshop.slot.stop(30) is None
        assert workshop.slot.state == "unloaded"
        assert workshop.slot.empty

    machine.run(story())


def test_a_load_error_on_restart_is_final(machine: Any, workshop: Any) -> None:
    """The file was replaced by a bad one while the model served: no retry."""

    async def story() -> None:
        (await workshop.ready()).end(signal=11)
        handle = await loading(workshop)
        handle.say("failed", cause="bad_model", message="truncated")
        handle.end(code=3)
        await workshop.until("failed")
        assert workshop.slot.failure.cause == "bad_model"

    machine.run(story())


def test_a_crash_under_an_unload_is_no_failure(machine: Any, workshop: Any) -> None:
    """It was to go, and it went: the next request may load it again."""

    async def story() -> None:
        handle = await workshop.ready()
        stop = asyncio.ensure_future(workshop.slot.stop(30))
        handle.end(signal=11)
        assert (await stop).outcome == "crashed"
        assert (workshop.slot.state, workshop.slot.failure) == ("unloaded", None)

    machine.run(story())


def test_a_stuck_worker_does_not_keep_the_place(machine: Any, workshop: Any) -> None:
    """It stays listed until it ends; a new load gets a new worker."""
    machine.timeouts = Timeouts(term=0, kill=0)

    async def story() -> None:
        handle = await workshop.ready()
        handle.ignored = {"terminate", "kill"}
        stuck = workshop.slot.current
        assert await workshop.slot.stop(0) is None
        assert (workshop.slot.stuck, workshop.slot.empty) == ([stuck], False)
        await workshop.ready()
        handle.end(signal=9)
        while workshop.slot.stuck:
            await workshop.changed()
        assert (workshop.slot.state, stuck.state) == ("ready", "gone")

    machine.run(story())


def test_an_idle_model_is_unloaded(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        workshop.slot.renew(workshop.slot.entry, 0.01)
        await workshop.ready()
        machine.now += 0.02
        await workshop.until("unloaded")
        assert workshop.states[-4:] == ["ready", "draining", "stopping", "unloaded"]

    machine.run(story())


@pytest.mark.parametrize("reason", ["pinned", "leased", "busy", "used"])
def test_a_model_that_is_needed_is_not_idle(machine: Any, workshop: Any, reason: str) -> None:
    async def story() -> None:
        workshop.slot.renew(workshop.slot.entry, 0.01)
        await workshop.ready()
        worker = workshop.slot.current
        workshop.slot.pinned = reason == "pinned"
        workshop.leased = reason == "leased"
        if reason == "busy":
            worker.begin()
        machine.now += 0 if reason == "used" else 60
        for _ in range(3):  # each one is longer than the next look at it is away
            await elapsed(0.02)
        assert workshop.slot.state == "ready"

    machine.run(story())


async def elapsed(seconds: float) -> None:
    """Let the event loop's timers run: there is nothing to wait for when nothing may happen."""
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, done.set)
    await done.wait()


def test_a_new_idle_time_holds_for_a_ready_worker(machine: Any, workshop: Any) -> None:
    """The catalogue is changed while the model is loaded."""

    async def story() -> None:
        await workshop.ready()
        machine.now += 60
        changed = CatalogueEntry("m", None, "echo", Options(ttl=0.01))
        workshop.slot.renew(changed, 0.01)
        await workshop.until("unloaded")

    machine.run(story())


def test_an_idle_time_of_zero_ends_a_model_with_its_last_request(
    machine: Any, workshop: Any
) -> None:
    async def story() -> None:
        await workshop.ready()
        worker = workshop.slot.current
        worker.begin()
        worker.begin()
        workshop.slot.keep_alive(0.0)
        worker.end(completed=True)
        assert workshop.slot.state == "ready"
        worker.end(completed=True)
        assert workshop.slot.state == "draining"  # at once, by no timer
        await workshop.until("unloaded")

    machine.run(story())


@pytest.mark.parametrize("reason", ["pinned", "leased", "not used yet"])
def test_an_idle_time_of_zero_spares_a_model_that_is_needed(
    machine: Any, workshop: Any, reason: str
) -> None:
    async def story() -> None:
        await workshop.ready()
        worker = workshop.slot.current
        workshop.slot.pinned = reason == "pinned"
        workshop.leased = reason == "leased"
        workshop.slot.keep_alive(0.0)
        if reason != "not used yet":
            worker.begin()
            worker.end(completed=True)
        assert workshop.slot.state == "ready"

    machine.run(story())


def test_a_request_may_say_that_a_model_stays(machine: Any, workshop: Any) -> None:
    async def story() -> None:
        workshop.slot.renew(workshop.slot.entry, 0.01)
        await workshop.ready()
        workshop.slot.keep_alive(None)
        machine.now += 60
        await elapsed(0.05)
        assert workshop.slot.state == "ready"
        workshop.slot.keep_alive(0.01)
        await workshop.until("unloaded")

    machine.run(story())
