"""The workers of one version of a model, as its requests see them: who gets the next one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..domain import Options
    from .worker import Worker

    Turn = asyncio.Future[Worker | None]


@dataclass(frozen=True, slots=True)
class Flow:
    """How many requests of a model there may be."""

    concurrency: int = 0  # at one worker at once; 0: any number
    queue: int = 1000  # that wait

    @classmethod
    def of(cls, options: Options, max_queue: int) -> Flow:
        """Return the flow of a model; `max_queue` is that of one that says nothing else."""
        queue = max_queue if options.max_queue is None else options.max_queue
        return cls(options.max_concurrency or 0, queue)

    def most(self, workers: int, in_flight: int) -> int:
        """Return how many requests may wait while so many workers have so many in flight.

        Where any number goes to a worker at once, all but one wait there. A model that is not
        loaded will have one worker.
        """
        return self.queue + (self.concurrency or 1) * max(1, workers) - in_flight


class Queue:
    """How many requests of a model wait, be it for a load, for room, or for their turn."""

    def __init__(self, model: str) -> None:
        self.waiting = 0
        self._model = model

    @contextmanager
    def place(self, most: int) -> Iterator[None]:
        """Count a request in that waits. Raises QueueFull where `most` do already."""
        if self.waiting >= most:
            raise QueueFull(
                f"the queue of model {self._model} is full: {self.waiting} requests wait; "
                "ask again in a moment, or raise its option max_queue",
                model=self._model,
            )
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1


class Crew:
    """Hands requests to the ready workers, the least loaded first; first come first served.

    A worker that is given out has begun the request, so that nobody else takes its place: `end`
    it. Belongs to the event loop.
    """

    def __init__(self, queue: Queue, flow: Flow) -> None:
        self.queue = queue
        self.flow = flow
        self.ready: Sequence[Worker] = ()
        self._turns: OrderedDict[Turn, None] = OrderedDict()
        self._serves = asyncio.Event()

    @property
    def waiting(self) -> int:
        """How many requests wait for a ready worker to have room."""
        return sum(not turn.done() for turn in self._turns)

    @property
    def most_waiting(self) -> int:
        """How many requests of the model may wait, as things are."""
        in_flight = sum(worker.traffic.in_flight for worker in self.ready)
        return self.flow.most(len(self.ready), in_flight)

    def take(self) -> Worker | None:
        """Return the worker for a request that has just come; None: it has to wait."""
        if self.queue.waiting >= self.most_waiting:
            return None
        return self.next()

    def next(self) -> Worker | None:
        """Return a worker with room, unless others wait for that; None: there is none."""
        return None if self._turns else self._begin()

    async def until_ready(self) -> None:
        """Wait until a worker is ready."""
        await self._serves.wait()

    async def until_turn(self) -> Worker | None:
        """Wait for room at a ready worker; None once there is no ready worker any more.

        Raises what `dismiss` was told.
        """
        if not self.ready:
            return None
        turn: Turn = asyncio.get_running_loop().create_future()
        self._turns[turn] = None
        try:
            return await turn
        except asyncio.CancelledError:
            self._turns.pop(turn, None)
            worker = _given(turn)
            if worker is not None:  # in the same moment
                worker.end(completed=False)
            raise

    def hand_over(self) -> None:
        """Let those who wait begin, as far as there is room: a request has ended."""
        while self._turns:
            turn = next(iter(self._turns))
            if not turn.done():
                worker = self._begin()
                if worker is None:
                    return
                turn.set_result(worker)
            del self._turns[turn]

    def refresh(self, ready: Sequence[Worker]) -> None:
        """Take note of which workers are ready."""
        self.ready = ready
        if ready:
            self._serves.set()
            self.hand_over()
            return
        self._serves.clear()
        for turn in self._open_turns():
            turn.set_result(None)

    def dismiss(self, error: Exception) -> None:
        """Tell those who wait for their turn that they wait in vain."""
        for turn in self._open_turns():
            turn.set_exception(error)

    def _open_turns(self) -> list[Turn]:
        turns, self._turns = self._turns, OrderedDict()
        return [turn for turn in turns if not turn.done()]

    def _begin(self) -> Worker | None:
        worker = min(self.ready, key=_load, default=None)
        most = self.flow.concurrency
        if worker is None or (most and worker.traffic.in_flight >= most):
            return None
        worker.begin()
        return worker


def _given(turn: Turn) -> Worker | None:
    came = turn.done() and not turn.cancelled() and turn.exception() is None
    return turn.result() if came else None


def _load(worker: Worker) -> tuple[int, float]:
    """Return what makes one go after others: its requests, and then how lately one ended."""
    return worker.traffic.in_flight, worker.traffic.last_end
