"""Leases: which client holds which model, and for how long without use."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ..domain import Lease, SlotKey
    from .ports import Clock


@dataclass(slots=True)
class Hold:
    """A lease and its use. `used_at` is monotonic."""

    lease: Lease
    used_at: float
    requests: int
    timer: asyncio.TimerHandle | None = None


class Clients:
    """All leases. An unused lease ends by itself: `on_expired` is told."""

    def __init__(self, clock: Clock, on_expired: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_expired = on_expired
        self._holds: dict[str, Hold] = {}
        self._swaps: dict[str, int] = {}  # client → ticket of its last swap
        self._tickets = itertools.count(1)

    def hold(self, client: str) -> Hold | None:
        """Return what the client holds."""
        return self._holds.get(client)

    def holds(self) -> list[Hold]:
        """Return all, in the order in which they were taken."""
        return list(self._holds.values())

    def holders(self, keys: Iterable[SlotKey]) -> tuple[str, ...]:
        """Return the clients that hold any of these."""
        wanted = set(keys)
        return tuple(c for c, hold in self._holds.items() if hold.lease.key in wanted)

    def use(self, client: str) -> SlotKey | None:
        """Note a request; return the client's current model."""
        hold = self._holds.get(client)
        if hold is None:
            return None
        hold.used_at = self._clock.monotonic()
        hold.requests += 1
        return hold.lease.key

    def put(self, lease: Lease) -> Lease | None:
        """Give a client a lease; return the one it had."""
        previous = self._drop(lease.client)
        if previous is not None and previous.lease.key == lease.key:
            lease = replace(lease, since=previous.lease.since)
        hold = Hold(lease, self._clock.monotonic(), previous.requests if previous else 0)
        self._holds[lease.client] = hold
        self._arm(hold, lease.ttl)
        return previous.lease if previous else None

    def remove(self, client: str) -> Lease | None:
        """End a client's lease; return it."""
        hold = self._drop(client)
        return hold.lease if hold else None

    def _drop(self, client: str) -> Hold | None:
        hold = self._holds.pop(client, None)
        if hold is not None and hold.timer is not None:
            hold.timer.cancel()
        return hold

    def expires_in(self, hold: Hold) -> float:
        """Return the seconds until the lease ends if it is not used."""
        return max(0.0, hold.used_at + hold.lease.ttl - self._clock.monotonic())

    def _arm(self, hold: Hold, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        hold.timer = loop.call_later(seconds, self._check, hold)

    def _check(self, hold: Hold) -> None:
        left = self.expires_in(hold)
        if left > 0:
            self._arm(hold, left)
        else:
            self._on_expired(hold.lease.client)

    def begin_swap(self, client: str) -> int:
        """Return a ticket; the swap of a client with the highest one is the one that counts."""
        ticket = self._swaps[client] = next(self._tickets)
        return ticket

    def is_current(self, client: str, ticket: int) -> bool:
        """Return whether no later swap or release of this client was begun."""
        return self._swaps.get(client) == ticket

    def end_swap(self, client: str, ticket: int) -> None:
        """Forget the ticket if it is still the last one."""
        if self._swaps.get(client) == ticket:
            del self._swaps[client]

    def close(self) -> None:
        """Stop all timers; the leases stay, to be restored."""
        for hold in self._holds.values():
            if hold.timer is not None:
                hold.timer.cancel()
