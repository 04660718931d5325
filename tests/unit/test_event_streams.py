"""Events over HTTP: the state first, then each event, resumed where a reader left off."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from modelsup.supervisor.fleet.events import KEPT, Events
from modelsup.supervisor.http.event_streams import EventStreams

if TYPE_CHECKING:
    from tests.unit.conftest import Machine


class Fleet:
    """A fleet with nothing but a queue and events."""

    def __init__(self, machine: Machine) -> None:
        self.events = Events(machine)

    def models(self) -> list[Any]:
        return []

    def workers(self) -> list[Any]:
        return []

    def clients(self) -> list[Any]:
        return []

    def books(self) -> Any:
        return SimpleNamespace(queue=("waiting",))


class Connection:
    """One HTTP request as the server gives it to the application."""

    def __init__(self, query: bytes = b"", last_seen: object = None, method: str = "GET") -> None:
        headers = [] if last_seen is None else [(b"last-event-id", str(last_seen).encode())]
        self.scope = {
            "type": "http",
            "method": method,
            "path": "/api/events",
            "query_string": query,
            "headers": headers,
        }
        self.sent: asyncio.Queue[Any] = asyncio.Queue()
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    def open(self, streams: EventStreams) -> asyncio.Task[None]:
        return asyncio.ensure_future(streams(self.scope, self.receive, self.sent.put))

    async def start(self) -> int:
        message = await self.sent.get()
        assert message["type"] == "http.response.start"
        status: int = message["status"]
        return status

    async def text(self) -> str:
        message = await self.sent.get()
        assert message["type"] == "http.response.body"
        text: str = message["body"].decode()
        return text


def data(text: str) -> list[Any]:
    """Return the data of the messages in a piece of a stream."""
    return [orjson.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]


def ids(text: str) -> list[int]:
    """Return the ids of the messages in a piece of a stream."""
    return [int(line[4:]) for line in text.splitlines() if line.startswith("id: ")]


@pytest.mark.parametrize(
    ("query", "method", "taken"),
    [
        (b"", "GET", True),
        (b"follow=1", "GET", True),
        (b"follow=0", "GET", False),
        (b"", "POST", False),
    ],
)
def test_which_requests_are_taken(machine: Machine, query: bytes, method: str, taken: bool) -> None:
    connection = Connection(query, method=method)
    assert EventStreams(Fleet(machine)).takes(connection.scope) is taken


def test_the_state_comes_first_and_then_each_event(machine: Machine) -> None:
    async def story() -> None:
        fleet, connection = Fleet(machine), Connection()
        task = connection.open(EventStreams(fleet))
        assert await connection.start() == 200
        state = await connection.text()
        assert state.startswith(f"event: state\nid: {fleet.events.last_id}\n")
        assert data(state) == [{"models": [], "workers": [], "clients": [], "queue": ["waiting"]}]
        for message in ("one", "two"):
            fleet.events.tell("idle", message, model="m")
            text = await connection.text()
            (event,) = data(text)
            assert (event["message"], event["facts"]) == (message, {"model": "m"})
            assert ids(text) == [event["id"]] == [fleet.events.last_id]
        connection.gone.set()
        await task

    machine.run(story())


def test_who_comes_back_gets_what_happened_meanwhile(machine: Machine) -> None:
    async def story() -> None:
        fleet = Fleet(machine)
        seen = fleet.events.last_id
        for message in ("one", "two"):
            fleet.events.tell("idle", message)
        connection = Connection(last_seen=seen)
        task = connection.open(EventStreams(fleet))
        await connection.start()
        assert [event["message"] for event in data(await connection.text())] == ["one", "two"]
        connection.gone.set()
        await task

    machine.run(story())


def test_a_reader_that_was_too_slow_gets_the_state_again(machine: Machine) -> None:
    async def story() -> None:
        fleet, connection = Fleet(machine), Connection()
        task = connection.open(EventStreams(fleet))
        await connection.start()
        await connection.text()
        for number in range(KEPT + 1):
            fleet.events.tell("idle", str(number), 10)
        assert (await connection.text()).startswith("event: state\n")
        connection.gone.set()
        await task

    machine.run(story())


def test_silence_is_broken_by_a_comment_and_the_end_by_nothing(machine: Machine) -> None:
    async def story() -> None:
        fleet, streams = Fleet(machine), EventStreams(Fleet(machine), heartbeat=0.01)
        connection = Connection(last_seen=fleet.events.last_id)
        task = connection.open(streams)
        await connection.start()
        assert await connection.text() == ": nothing new\n\n"
        assert await connection.text() == ": nothing new\n\n"
        streams.close()
        await task

    machine.run(story())


@pytest.mark.parametrize(
    ("query", "last_seen"), [(b"follow=x", None), (b"tail=3", None), (b"", "now")]
)
def test_a_bad_request_is_refused(machine: Machine, query: bytes, last_seen: object) -> None:
    async def story() -> None:
        connection = Connection(query, last_seen)
        await connection.open(EventStreams(Fleet(machine)))
        assert await connection.start() == 422

    machine.run(story())
