"""What happened lately: one call tells an event to the log and to those who watch."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from .ports import Clock

logger = logging.getLogger(__name__)

KEPT: Final = 1000  # events

Kind = Literal["worker", "restart", "eviction", "idle", "lease", "queue", "alarm", "prepare"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. `facts` are values of JSON by name: the model, the worker, ..."""

    id: int
    at: float  # UNIX seconds
    kind: Kind
    message: str
    facts: dict[str, Any]


class Events:
    """The last events. All calls come from the event loop's thread.

    Ids rise by one. They begin at the time of the start in milliseconds, so that those of an
    earlier supervisor are smaller. Watchers keep nothing here but their place: one who is slow
    misses events and finds that out.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = int(clock.wall() * 1000)
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._changed = asyncio.Event()

    @property
    def last_id(self) -> int:
        """The id of the last event; before the first one, the id that it follows."""
        return self._last

    def tell(self, kind: Kind, message: str, level: int = logging.INFO, **facts: Any) -> None:
        """Log an event, with its facts as fields, and keep it. Facts that are None are left out."""
        known = {name: value for name, value in facts.items() if value is not None}
        logger.log(level, message, extra=known)
        self._last += 1
        self._kept.append(Event(self._last, self._clock.wall(), kind, message, known))
        self._changed.set()
        self._changed = asyncio.Event()

    def kept(self) -> list[Event]:
        """Return what is kept, oldest first."""
        return list(self._kept)

    def after(self, last_seen: int) -> list[Event] | None:
        """Return the events after this id; None if some of them, or the id, are not known here."""
        oldest = self._last - len(self._kept)
        if not oldest <= last_seen <= self._last:
            return None
        return [event for event in self._kept if event.id > last_seen]

    async def changed(self) -> None:
        """Wait for the next event from now on."""
        await self._changed.wait()
