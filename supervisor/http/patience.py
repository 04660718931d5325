"""How long a request waits: until its client goes, its time is up, or nothing moves for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from .request_body import ClientGone

if TYPE_CHECKING:
    from .request_body import RequestBody

GRACE: Final = 0.02  # seconds before a task is spent on watching for the client's going


class Stalled(Exception):
    """Nothing has moved for as long as it may take."""


class Overdue(Exception):
    """The time that the client gave for the whole request is up."""


Reason = ClientGone | Stalled | Overdue


class Patience:
    """Watches over the current task and cancels what it waits for.

    Most requests are over within GRACE and cost one timer. `limit` is how many seconds may pass
    without anything moving, `time_limit` how many the whole request may take from now on, if that
    is bounded. After a CancelledError, `verdict` says whether it was ours and why.
    """

    __slots__ = (
        "_body",
        "_deadline",
        "_end_timer",
        "_limit",
        "_loop",
        "_reason",
        "_task",
        "_timer",
        "_watcher",
    )

    def __init__(self, body: RequestBody, limit: float, time_limit: float | None = None) -> None:
        self._body = body
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._deadline = 0.0  # loop time
        self._reason: Reason | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._end_timer: asyncio.TimerHandle | None = None
        if time_limit is not None:
            self._end_timer = self._loop.call_later(time_limit, self._end, Overdue())

    def start(self) -> None:
        """Begin to count: from now, something must move within the limit."""
        self._deadline = self._loop.time() + self._limit
        if self._timer is None:
            self._timer = self._loop.call_later(min(GRACE, self._limit), self._on_time)

    def moved(self) -> None:
        """Something moved: count anew."""
        self._deadline = self._loop.time() + self._limit

    def watch_client(self) -> None:
        """Watch for the client's going, which shows once its body is complete."""
        if self._watcher is None and self._body.complete:
            self._watcher = self._loop.create_task(self._watch())

    def pause(self) -> None:
        """Watch over nothing but the time of the whole request, until it is started again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = None

    def stop(self) -> None:
        """Watch no more. Must be called in the end."""
        self.pause()
        if self._end_timer is not None:
            self._end_timer.cancel()
            self._end_timer = None

    def verdict(self) -> Reason | None:
        """Return why the task was cancelled, None if it was not by this object alone."""
        if self._reason is None or self._task is None or self._task.uncancel() > 0:
            return None
        return self._reason

    def _on_time(self) -> None:
        if self._loop.time() >= self._deadline:
            self._end(Stalled())
            return
        self._timer = self._loop.call_at(self._deadline, self._on_time)
        if self._body.complete:
            self.watch_client()
        else:
            self._body.when_complete(self.watch_client)

    async def _watch(self) -> None:
        await self._body.client_gone()
        self._end(ClientGone())

    def _end(self, reason: Reason) -> None:
        if self._reason is None and self._task is not None:
            self._reason = reason
            self._task.cancel()
