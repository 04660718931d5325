"""The bridge from Flask's threads to the event loop, where alone the fleet may be touched."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import Stopping

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine

T = TypeVar("T")


class OnLoop:
    """Runs calls on the event loop while a thread waits for their outcome.

    `close` must be called before the loop ends: it answers every thread that still waits, so
    that none waits for ever on a loop that no longer runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: set[asyncio.Task[Any]] = set()  # touched on the loop only, as `_closed`
        self._closed = False

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the loop and return what it returns. Raises what it raises."""

        async def run() -> T:
            return function()

        return self.wait(run)

    def wait(self, start: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine on the loop to its end. Raises what it raises, or Stopping."""
        outcome: Future[T] = Future()
        try:
            self._loop.call_soon_threadsafe(self._start, start, outcome)
        except RuntimeError:  # the loop is closed
            raise stopping() from None
        return outcome.result()

    def close(self) -> None:
        """Cancel what runs and refuse what comes: both raise Stopping. Call it on the loop."""
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def _start(self, start: Callable[[], Coroutine[Any, Any, T]], outcome: Future[T]) -> None:
        if self._closed:
            outcome.set_exception(stopping())
            return
        task = self._loop.create_task(start())
        self._tasks.add(task)

        def settle(done: asyncio.Task[T]) -> None:
            self._tasks.discard(done)
            if done.cancelled():
                outcome.set_exception(stopping())
            elif (error := done.exception()) is not None:
                outcome.set_exception(error)
            else:
                outcome.set_result(done.result())

        task.add_done_callback(settle)


def stopping() -> Stopping:
    """Return the error for a call that comes, or still waits, when all ends."""
    return Stopping("the supervisor is stopping; start it again, then repeat the call")
