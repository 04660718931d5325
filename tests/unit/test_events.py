"""Events: told once to the log and to watchers, kept for a while, resumed by their ids."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from modelsup.supervisor.fleet.events import KEPT, Events

if TYPE_CHECKING:
    import pytest

    from tests.unit.conftest import Machine, Workshop


def test_one_call_logs_and_keeps_an_event(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    events = Events(machine)
    with caplog.at_level(logging.INFO):
        events.tell("lease", "a client has a model", logging.WARNING, client="anna", model=None)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "a client has a model")
    assert record.__dict__["client"] == "anna"
    (event,) = events.kept()
    assert (event.kind, event.message, event.facts) == ("lease", record.msg, {"client": "anna"})
    assert (event.id, event.at) == (events.last_id, machine.wall())


def test_ids_go_on_rising_after_a_restart(machine: Machine) -> None:
    first = Events(machine)
    first.tell("idle", "one")
    machine.now += 1
    second = Events(machine)
    assert second.last_id > first.last_id
    assert second.after(first.last_id) is None


def test_who_missed_events_finds_out(machine: Machine) -> None:
    events = Events(machine)
    start = events.last_id
    assert events.after(start) == []
    for number in range(KEPT):
        events.tell("idle", str(number), logging.DEBUG)
    found = events.after(start)
    assert found is not None
    assert [event.id for event in found] == list(range(start + 1, start + KEPT + 1))
    events.tell("idle", "one too many", logging.DEBUG)
    assert events.after(start) is None
    assert events.after(events.last_id + 1) is None
    assert len(events.kept()) == KEPT


def test_all_who_wait_hear_of_an_event(machine: Machine) -> None:
    async def story() -> None:
        events = Events(machine)
        waiting = [asyncio.ensure_future(events.changed()) for _ in range(2)]
        await asyncio.sleep(0)
        events.tell("idle", "now")
        await asyncio.gather(*waiting)

    machine.run(story())


def test_a_crash_is_told_with_its_cause_and_what_follows(
    machine: Machine, workshop: Workshop
) -> None:
    async def story() -> None:
        handle = await workshop.ready()
        handle.end(signal=9)
        await workshop.until("restarting")
        told = [(e.kind, e.message) for e in machine.events.kept()]
        assert ("worker", "worker ready") in told
        assert told[-2:] == [("worker", "worker failed"), ("restart", "a worker crashed")]
        failed, crashed = machine.events.kept()[-2:]
        assert failed.facts["cause"] == crashed.facts["cause"] == "signal:9"
        assert crashed.facts["model"] == "m"
        await workshop.slot.stop(0)

    machine.run(story())
