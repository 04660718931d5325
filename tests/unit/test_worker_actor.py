"""One worker from the wish for it to its receipt, on a machine that does as the test says."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from modelsup.supervisor.domain import Failure, SlotKey
from modelsup.supervisor.errors import LaunchFailed, LoadFailed, Stopping
from modelsup.supervisor.fleet.services import Timeouts
from modelsup.supervisor.fleet.worker import Worker
from modelsup.supervisor.states import State
from modelsup.worker.contract import LaunchSpec

GPU_BYTES = 5_000_000  # as the machine of these tests has it
SPEC = LaunchSpec("w1", "m", "1", "echo", None, "secret", "/tmp/w1")


class Life:
    """A worker with the states that it went through."""

    def __init__(self, machine: Any, device: str | None = None) -> None:
        self.machine = machine
        self.states: list[str] = []
        self._moved = asyncio.Event()
        self.worker = Worker(
            SlotKey("m", "1"),
            replace(SPEC, device=device),
            machine.services,
            self._on_change,
            lambda: None,
        )

    def _on_change(self, worker: Worker) -> None:
        self.states.append(worker.state)
        self._moved.set()

    async def until(self, state: State) -> None:
        while self.worker.state is not state:
            self._moved.clear()
            await self._moved.wait()

    async def ready(self) -> Any:
        handle = await self.machine.handles.get()
        await self.until(State.LOADING)
        handle.say("loading", "warming", "ready", seconds={"load": 0.5})
        await self.worker.until_up()
        return handle


def test_from_wish_to_receipt(machine: Any) -> None:
    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        assert life.worker.seconds["load"] == 0.5
        assert life.worker.signatures
        life.worker.request_stop(30)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.outcome, receipt.freed_host, receipt.verified) == ("drained", 200, True)
        assert handle.calls == ["terminate", "dispose"]
        assert life.states == ["loading", "warming", "ready", "draining", "stopping", "gone"]

    machine.run(story())


def test_a_stop_waits_for_requests_and_counts_them(machine: Any) -> None:
    async def story() -> None:
        life = Life(machine)
        await life.ready()
        life.worker.begin()
        life.worker.begin()
        life.worker.request_stop(30)
        await life.until(State.DRAINING)
        machine.now += 2
        life.worker.end(completed=True)
        assert life.worker.state is State.DRAINING
        machine.now += 1
        life.worker.end(completed=True)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.in_flight_completed, receipt.in_flight_aborted) == (2, 0)
        assert (receipt.outcome, receipt.drain) == ("drained", 3)

    machine.run(story())


def test_a_shorter_wish_cuts_a_drain_short(machine: Any) -> None:
    """An unload drains; a forced one that comes later must not wait for it."""

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        life.worker.begin()
        life.worker.request_stop(30)
        await life.until(State.DRAINING)
        life.worker.request_stop(0, force=True)
        life.worker.request_stop(30)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.outcome, receipt.in_flight_aborted) == ("forced", 1)
        assert handle.upstream.closed

    machine.run(story())


def test_the_ladder_goes_on_to_sigkill(machine: Any) -> None:
    machine.timeouts = Timeouts(term=0.01)

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        handle.ignored = {"terminate"}
        life.worker.request_stop(0)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert receipt.outcome == "forced"
        assert handle.calls == ["terminate", "kill", "dispose"]

    machine.run(story())


def test_a_worker_that_survives_sigkill_is_stuck_until_it_ends(machine: Any) -> None:
    """A process in an uninterruptible call: the unload gives up waiting, not watching."""
    machine.timeouts = Timeouts(term=0.01, kill=0.01)

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        handle.ignored = {"terminate", "kill"}
        life.worker.request_stop(0)
        assert await life.worker.until_ended() is None
        assert life.worker.state is State.STUCK
        assert "dispose" not in handle.calls
        handle.end(signal=9)
        await life.until(State.GONE)
        assert handle.calls[-1] == "dispose"

    machine.run(story())


def test_memory_that_does_not_come_back_is_leaked(machine: Any) -> None:
    machine.verdicts = ["held", "held", "back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        await life.ready()
        life.worker.request_stop(0)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.verified, receipt.reason) == (False, "the test says so")
        await life.until(State.GONE)
        assert life.states[-3:] == ["stopping", "leaked", "gone"]

    machine.run(story())


def test_a_stuck_worker_whose_gpu_memory_is_held_in_the_end_is_leaked(machine: Any) -> None:
    machine.timeouts = Timeouts(term=0.01, kill=0.01)
    machine.verdicts = ["held", "back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        handle = await life.ready()
        handle.ignored = {"terminate", "kill"}
        life.worker.request_stop(0)
        await life.until(State.STUCK)
        handle.end(signal=9)
        await life.until(State.GONE)
        assert life.states[-3:] == ["stuck", "leaked", "gone"]

    machine.run(story())


def test_a_worker_that_stands_still_is_let_go_on(machine: Any) -> None:
    """Where nobody measures, at once; and news of a device after its end moves nothing."""

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say("loading", device_open=True, framework="echo 1")
        assert handle.calls == ["go on"]
        assert life.worker.framework == "echo 1"
        machine.verdicts = ["back"]
        life.worker.request_stop(0)
        await life.until(State.GONE)
        handle.say("loading", device_open=True)
        assert handle.calls == ["go on", "terminate", "dispose"]

    machine.run(story())


@pytest.mark.parametrize(
    ("stages", "expected"),
    [((), 0), (("loading",), None), (("loading", "warming", "ready"), 700)],
    ids=["before the load", "in the load", "ready"],
)
def test_what_a_stopped_worker_is_thought_to_hold_of_its_gpu(
    machine: Any, stages: tuple[str, ...], expected: int | None
) -> None:
    """For where the driver does not tell: nothing, nobody knows, its charge."""
    machine.verdicts = ["back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        life.worker.charges = {"GPU-1": 700}
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say(*stages)
        life.worker.request_stop(0)
        await life.until(State.GONE)
        assert machine.expected == [expected]

    machine.run(story())


@pytest.mark.parametrize(("grown", "expected"), [(500, 500), (900, 700), (-100, 700), (None, 700)])
def test_a_ready_worker_is_thought_to_hold_what_its_gpus_use_has_grown_by(
    machine: Any, grown: int | None, expected: int
) -> None:
    """For where the driver does not tell; no more than its charge, as others may have grown."""
    machine.verdicts = ["back"]
    machine.held.bytes, machine.held.grown = None, grown

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        life.worker.charges = {"GPU-1": 700}
        await life.ready()
        await life.worker.gpu.measure()
        life.worker.request_stop(0)
        await life.until(State.GONE)
        assert machine.expected == [expected]

    machine.run(story())


@pytest.mark.parametrize("verdict", ["held", "back"])
def test_a_crash_in_the_load_tells_who_waits_at_once_and_then_looks_for_the_memory(
    machine: Any, verdict: str
) -> None:
    machine.verdicts = [verdict, "back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        waiting = asyncio.ensure_future(life.worker.until_up())
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say("loading")
        handle.end(signal=11)
        with pytest.raises(LoadFailed):
            await waiting
        last = State.GONE if verdict == "held" else State.FAILED
        await life.until(last)
        between = ["leaked"] if verdict == "held" else []
        assert life.states == ["loading", "stopping", *between, last]
        assert machine.expected[0] == 0  # of the dead only what is listed can be told

    machine.run(story())


def test_gpu_memory_that_comes_back_is_on_the_receipt(machine: Any) -> None:
    machine.verdicts = ["back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        await life.ready()
        life.worker.request_stop(0)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.verified, receipt.freed_gpu) == (True, {"GPU-1": GPU_BYTES})

    machine.run(story())


def test_a_crash_whose_gpu_memory_is_held_stays_charged(machine: Any) -> None:
    machine.verdicts = ["held", "back"]

    async def story() -> None:
        life = Life(machine, device="GPU-1")
        handle = await life.ready()
        await life.worker.gpu.measure()
        handle.end(signal=11)
        await life.until(State.GONE)
        assert life.states[-2:] == ["leaked", "gone"]
        assert life.worker.failure is not None
        assert life.worker.failure.cause == "signal:11"

    machine.run(story())


@pytest.mark.parametrize("state", ["loading", "warming"])
def test_death_while_coming_up_wakes_who_waits(machine: Any, state: str) -> None:
    async def story() -> None:
        life = Life(machine)
        waiters = [asyncio.ensure_future(life.worker.until_up()) for _ in range(3)]
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say(state)
        handle.end(signal=11)
        for outcome in await asyncio.gather(*waiters, return_exceptions=True):
            assert isinstance(outcome, LoadFailed)
            assert outcome.failure.cause == "signal:11"
            assert outcome.failure.log == ("last words of w1",)
        assert handle.calls == ["dispose"]

    machine.run(story())


def test_a_load_error_that_the_worker_tells_stands(machine: Any) -> None:
    async def story() -> None:
        life = Life(machine)
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say("failed", cause="bad_model", message="not a model")
        handle.end(code=3)
        with pytest.raises(LoadFailed, match="not a model"):
            await life.worker.until_up()

    machine.run(story())


def test_a_worker_that_failed_and_does_not_exit_is_killed(machine: Any) -> None:
    machine.timeouts = Timeouts(kill=0.01)

    async def story() -> None:
        life = Life(machine)
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        handle.say("failed", cause="load_error", message="no")
        await life.until(State.FAILED)
        assert handle.calls == ["kill", "dispose"]

    machine.run(story())


def test_a_load_that_takes_too_long_is_killed(machine: Any) -> None:
    async def story() -> None:
        life = Life(machine)
        handle = await machine.handles.get()
        await life.until(State.LOADING)
        machine.now += 31
        handle.say("warming")  # anything that makes it look at the clock
        with pytest.raises(LoadFailed, match="not ready within 30 s") as caught:
            await life.worker.until_up()
        assert caught.value.failure.cause == "timeout"
        assert handle.calls == ["kill", "dispose"]

    machine.run(story())


class NoSuchRuntime(LaunchFailed):
    """A launch that would fail on every try."""

    cause = "load_error"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (LaunchFailed("fork failed"), "unknown"),
        (NoSuchRuntime("no such runtime"), "load_error"),
        (RuntimeError("a bug"), "unknown"),
    ],
)
def test_a_launch_that_fails(machine: Any, error: Exception, cause: str) -> None:
    machine.refusal = error

    async def story() -> None:
        life = Life(machine)
        with pytest.raises(LoadFailed, match=str(error)) as caught:
            await life.worker.until_up()
        assert caught.value.failure.cause == cause
        assert await life.worker.until_ended() is None
        assert life.states == ["failed"]

    machine.run(story())


def test_a_launch_that_hangs_ends_in_time(machine: Any) -> None:
    """A forkserver that never finishes its import must not make a load wait for ever."""
    machine.timeouts = Timeouts(load=0.01)
    machine.gate = asyncio.Event()

    async def story() -> None:
        life = Life(machine)
        with pytest.raises(LoadFailed, match=r"not started within 0\.01 s"):
            await life.worker.until_up()

    machine.run(story())


@pytest.mark.parametrize("early", [True, False])
def test_a_stop_does_not_wait_for_the_launch(machine: Any, early: bool) -> None:
    machine.gate = asyncio.Event()

    async def story() -> None:
        life = Life(machine)
        if not early:
            await machine.spawning.wait()
        life.worker.request_stop(30)
        life.worker.request_stop(0)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.outcome, receipt.verified) == ("drained", True)
        with pytest.raises(Stopping, match="unloaded while it was loading"):
            await life.worker.until_up()
        assert life.states == ["stopping", "gone"]

    machine.run(story())


def test_a_crash_under_a_drain_is_no_orderly_end(machine: Any) -> None:
    """Its connections end first, so that for a moment it looks as if all requests were done."""

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        life.worker.begin()
        life.worker.request_stop(30)
        await life.until(State.DRAINING)
        handle.ignored = {"terminate"}
        life.worker.end(completed=False)
        await life.until(State.STOPPING)
        handle.end(signal=11)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert (receipt.outcome, receipt.in_flight_aborted) == ("crashed", 1)

    machine.run(story())


def test_a_stop_that_meets_a_crash_has_a_receipt(machine: Any) -> None:
    """Whoever asked for the end gets an answer, though there was nothing left to stop."""

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        handle.end(signal=9)
        life.worker.request_stop(30)
        receipt = await life.worker.until_ended()
        assert receipt is not None
        assert receipt.outcome == "crashed"
        assert life.worker.state is State.GONE

    machine.run(story())


def test_a_condemned_worker_fails_with_the_reason_given(machine: Any) -> None:
    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        life.worker.condemn(Failure("hung", "no answer"))
        await life.until(State.FAILED)
        assert life.worker.failure is not None
        assert (life.worker.failure.cause, handle.calls) == ("hung", ["kill", "dispose"])

    machine.run(story())


def test_a_refused_connection_is_the_first_news_of_a_death(machine: Any) -> None:
    """The end of the process comes a moment later, and its own cause stands."""

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        life.worker.begin()
        handle.upstream.refused = True
        life.worker.end(completed=False)
        await asyncio.sleep(0)
        handle.end(signal=11)
        await life.until(State.FAILED)
        assert life.worker.failure is not None
        assert life.worker.failure.cause == "signal:11"

    machine.run(story())


def test_news_of_the_past_changes_nothing(machine: Any) -> None:
    """A late "ready" of a worker that is being stopped."""

    async def story() -> None:
        life = Life(machine)
        handle = await life.ready()
        life.worker.begin()
        life.worker.request_stop(30)
        await life.until(State.DRAINING)
        handle.say("warming", "ready")
        assert life.worker.state is State.DRAINING
        life.worker.end(completed=True)
        await life.until(State.GONE)

    machine.run(story())
