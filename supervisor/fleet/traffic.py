"""The requests of one worker: how many there are, and when the last one ended."""

from __future__ import annotations

import asyncio


class Traffic:
    """Counts requests in and out. Times are monotonic seconds."""

    def __init__(self, now: float) -> None:
        self.in_flight = 0
        self.total = 0
        self.completed = 0
        self.last_end = self.last_answer = now
        self.overdue_since: float | None = None  # requests ran out of their time, none was answered
        self.idle = asyncio.Event()
        self.idle.set()

    def begin(self) -> None:
        """Count a request in."""
        self.in_flight += 1
        self.total += 1
        self.idle.clear()

    def end(self, now: float, completed: bool) -> None:
        """Count a request out; `completed` says that the whole answer was passed on."""
        self.in_flight -= 1
        self.last_end = now
        if completed:
            self.completed += 1
            self.last_answer = now
            self.overdue_since = None
        if self.in_flight == 0:
            self.idle.set()
