"""Leases: which client holds which model, and for how long without use."""

from __future__ import annotations

import asyncio
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


@dataclass(slots=True)
class Swap:
    """A swap that waits for its model, within `limit`; it ends at once when it is overtaken."""

    limit: asyncio.Timeout
    overtaken: bool = False  # by a later swap or release of the same client


class Clients:
    """All leases. An unused lease ends by itself: `on_expired` is told."""

    def __init__(self, clock: Clock, on_expired: Callable[[str], None]) -> None:
        self._clock = clock
        self._on_expired = on_expired
        self._holds: dict[str, Hold] = {}
        self._swaps: dict[str, Swap] = {}  # client → its last one, under way

    def hold(self, client: str) -> Hold | None:
        """Return what the client holds."""
        return self._holds.get(client)

    def holds(self) -> list[Hold]:
        """Return all, in the order in which they were taken."""
        return list(self._holds.values())

    def holders(self, keys: Iterable[SlotKey]) -> tuple[str, ...]:
        """Return the clients that hold any of these."""
        wanted = {key.crew for key in keys}
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

    def begin_swap(self, client: str, swap: Swap) -> None:
        """Take note of a swap that is about to wait, in its limit; it overtakes the one before."""
        self.overtake(client)
        self._swaps[client] = swap

    def overtake(self, client: str) -> None:
        """End the wait of the client's swap that is under way, if there is one."""
        swap = self._swaps.pop(client, None)
        if swap is not None:
            swap.overtaken = True
            if not swap.limit.expired():
                swap.limit.reschedule(0)  # in the past: give up now

    def end_swap(self, client: str, swap: Swap) -> None:
        """Forget a swap that does not wait any more, if it was not overtaken."""
        if self._swaps.get(client) is swap:
            del self._swaps[client]

    def close(self) -> None:
        """Stop all timers; the leases stay, to be restored."""
        for hold in self._holds.values():
            if hold.timer is not None:
                hold.timer.cancel()
