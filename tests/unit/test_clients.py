"""Leases: who holds what, renewal by use, and swaps that overtake each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.domain import Lease, SlotKey
from modelsup.supervisor.fleet.clients import Clients, Swap

if TYPE_CHECKING:
    from collections.abc import Callable

A, B = SlotKey("a", "1"), SlotKey("b", "1")


def lease(client: str, key: SlotKey = A, ttl: float = 60.0, since: float = 1.0) -> Lease:
    return Lease(client, key, since, ttl)


def with_clients(machine: Any, story: Callable[[Clients], Any]) -> list[str]:
    """Run a test with a fresh set of clients; return whose leases ended."""
    expired: list[str] = []

    async def run() -> None:
        clients = Clients(machine, expired.append)
        await story(clients)
        clients.close()

    machine.run(run())
    return expired


def test_a_client_holds_one_model(machine: Any) -> None:
    async def story(clients: Clients) -> None:
        assert clients.put(lease("anna")) is None
        assert clients.put(lease("otto")) is None
        previous = clients.put(lease("anna", B))
        assert previous is not None
        assert previous.key == A
        assert clients.holders([A]) == ("otto",)
        assert clients.holders([B]) == ("anna",)
        assert clients.holders([A, B]) == ("otto", "anna")
        assert clients.remove("anna") == lease("anna", B)
        assert clients.remove("anna") is None
        assert clients.use("anna") is None

    assert with_clients(machine, story) == []


def test_a_lease_on_the_same_model_keeps_its_beginning(machine: Any) -> None:
    async def story(clients: Clients) -> None:
        clients.put(lease("anna", since=1.0))
        clients.use("anna")
        clients.put(lease("anna", since=9.0, ttl=5.0))
        hold = clients.hold("anna")
        assert hold is not None
        assert (hold.lease.since, hold.lease.ttl, hold.requests) == (1.0, 5.0, 1)
        clients.put(lease("anna", B, since=9.0))
        assert clients.holds()[0].lease.since == 9.0

    with_clients(machine, story)


def test_use_renews_a_lease(machine: Any) -> None:
    async def story(clients: Clients) -> None:
        clients.put(lease("anna", ttl=60))
        hold = clients.hold("anna")
        assert hold is not None
        machine.now += 59
        assert clients.expires_in(hold) == 1
        assert clients.use("anna") == A
        assert clients.expires_in(hold) == 60
        machine.now += 61
        assert clients.expires_in(hold) == 0

    assert with_clients(machine, story) == []


def test_a_lease_ends_after_its_last_use_not_after_its_beginning(machine: Any) -> None:
    """The timer that was set at the beginning comes too early once the lease was used."""

    async def story() -> None:
        ended: asyncio.Queue[str] = asyncio.Queue()
        clients = Clients(machine, ended.put_nowait)
        clients.put(lease("anna", ttl=0.01))
        machine.now += 0.02
        clients.put(lease("used", ttl=0.005))  # its timer comes first, and finds it just used
        assert await ended.get() == "anna"
        assert clients.hold("used") is not None
        machine.now += 0.02
        assert await ended.get() == "used"
        clients.close()

    machine.run(story())


async def wait_to_swap(clients: Clients, client: str, let_go: asyncio.Event, limit: float) -> Swap:
    """Be a swap whose model is ready once it is let go; return what became of it."""
    swap = Swap(asyncio.timeout(limit))
    with suppress(TimeoutError):
        async with swap.limit:
            clients.begin_swap(client, swap)
            await let_go.wait()
    clients.end_swap(client, swap)
    return swap


def test_a_later_swap_ends_the_wait_of_the_earlier_one(machine: Any) -> None:
    async def story(clients: Clients) -> None:
        let_go = asyncio.Event()
        first, other, second = (
            asyncio.ensure_future(wait_to_swap(clients, client, let_go, 1000))
            for client in ("anna", "otto", "anna")
        )
        assert (await first).overtaken
        let_go.set()
        assert [(await swap).overtaken for swap in (other, second)] == [False, False]
        clients.overtake("anna")
        assert not second.result().overtaken

    with_clients(machine, story)


@pytest.mark.parametrize("limit", [1000, 0], ids=["in its time", "as its time is up"])
def test_a_release_ends_the_wait_of_a_swap(machine: Any, limit: float) -> None:
    async def story(clients: Clients) -> None:
        swap = asyncio.ensure_future(wait_to_swap(clients, "anna", asyncio.Event(), limit))
        await asyncio.sleep(0)
        clients.overtake("anna")
        assert (await swap).overtaken

    with_clients(machine, story)
