"""Turn requests that wait for the model into one call."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from .batch_size import BatchSize
from .statistics import Statistics

if TYPE_CHECKING:
    from .batch_rules import BatchRules
    from .codecs.base import Request
    from .runtimes.base import Model

    Outputs = dict[str, np.ndarray[Any, Any]]
    Outcome: TypeAlias = "Outputs | CallFailed"
    # A call that succeeded: its rows, and the seconds to join, to compute and to cut.
    Execution: TypeAlias = tuple[int, float, float, float]
    # What became of a batch: an outcome for each request, the calls that succeeded, the number of
    # all calls, and when they began and ended, by time.perf_counter.
    Computed: TypeAlias = tuple[list[Outcome], list[Execution], int, float, float]

logger = logging.getLogger(__name__)

QUICK: Final = 0.002  # seconds; calls below it run on the event loop
_OF_A_STACK: Final = ("Graph execution error:", "Detected at node", 'File "', "[[{{node")
WEIGHT: Final = 0.1  # of the last call in what is typical


class CallFailed(Exception):
    """The model raised. `user_error`: the framework blames the input, not the model."""

    def __init__(self, message: str, *, user_error: bool) -> None:
        super().__init__(message)
        self.user_error = user_error


@dataclass(slots=True, eq=False)
class _Waiter:
    request: Request
    answer: asyncio.Future[Outputs]
    queued: float  # time.perf_counter


class Batcher:
    """Runs a model, one call at a time: quick calls on the event loop, others in a thread.

    A hand-over to a thread and back costs as much as the call of a small model, and the two
    threads then fight for the interpreter's lock.

    While a call runs, requests gather; the next call takes the oldest one and those that can
    join it, as many as the rules say. Where the rules let the oldest one wait for others, younger
    ones that cannot join it may go before it. A request joins another if both have rows and agree
    in signature, types and trailing shapes. A joint call that fails is repeated request by
    request, so that a bad one fails alone. All methods belong to the event loop's thread.
    """

    def __init__(self, model: Model, rules: BatchRules) -> None:
        self.statistics = Statistics()
        self._model = model
        self._rules = rules
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._queue: list[_Waiter] = []
        self._busy = False
        self._timer: asyncio.TimerHandle | None = None  # until a request has waited long enough
        self._sizes: dict[str, BatchSize] = {}  # by signature
        self._typical: dict[str, float] = {}  # by signature: seconds of its late calls

    @property
    def waiting(self) -> int:
        """Requests that no call has taken yet."""
        return sum(not waiter.answer.cancelled() for waiter in self._queue)

    def submit(self, request: Request) -> asyncio.Future[Outputs]:
        """Queue a request. The future ends in its outputs, or in CallFailed.

        Cancelling the future takes the request out of the queue; a call that has begun goes on.
        """
        loop = asyncio.get_running_loop()
        waiter = _Waiter(request, loop.create_future(), time.perf_counter())
        self._queue.append(waiter)
        self._wake(loop)
        return waiter.answer

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._busy:
            self._busy = True
            # One turn of the loop later: requests that arrived together share the first call.
            loop.call_soon(self._start_next, loop)

    def _start_next(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batch, wait = self._take()
        self._busy = bool(batch)
        if not batch:
            if wait is not None:
                self._timer = loop.call_later(wait, self._wake, loop)
            return
        if self._is_quick(batch[0]):
            loop.call_soon(self._deliver, batch, self._compute(batch), loop)
        else:
            self._thread.submit(self._compute_in_thread, batch, loop)

    def _is_quick(self, waiter: _Waiter) -> bool:
        return self._typical.get(waiter.request.signature, QUICK) < QUICK

    def _take(self) -> tuple[list[_Waiter], float | None]:
        """Remove the next call's waiters from the queue, and all that were cancelled.

        Return them and, where all wait for others to join them, the seconds until one goes anyway.
        """
        now = time.perf_counter()
        self._queue = rest = [w for w in self._queue if not w.answer.cancelled()]
        waits = []
        while rest:
            joined, rest, full = self._joined(rest, now)
            age, rows = now - joined[0].queued, [_rows(waiter.request) for waiter in joined]
            alone = joined[0].request.rows is None
            batch = joined[: self._rules.count(rows, age, full=full or alone)]
            if batch:
                taken = set(batch)
                self._queue = [waiter for waiter in self._queue if waiter not in taken]
                return batch, None
            waits.append(self._rules.max_delay - age)
        return [], min(waits, default=None)

    def _joined(
        self, waiters: list[_Waiter], now: float
    ) -> tuple[list[_Waiter], list[_Waiter], bool]:
        """Return the first waiter with those that can join it, the others, and if it is full."""
        first = waiters[0]
        most = self._rules.most(self._size(first.request.signature).limit, now - first.queued)
        joined, others, rows, full = [first], [], first.request.rows or 0, False
        for waiter in waiters[1:]:
            more = rows + (waiter.request.rows or 0)
            if more <= most and _can_join(first.request, waiter.request):
                joined.append(waiter)
                rows = more
            else:
                others.append(waiter)
                full = full or (more > most and _can_join(first.request, waiter.request))
        return joined, others, full or rows >= most

    def _size(self, signature: str) -> BatchSize:
        return self._sizes.setdefault(signature, BatchSize(self._rules.max_rows))

    def _compute_in_thread(self, batch: list[_Waiter], loop: asyncio.AbstractEventLoop) -> None:
        """Run in the compute thread; always ends in `_deliver`."""
        loop.call_soon_threadsafe(self._deliver, batch, self._compute(batch), loop)

    def _compute(self, batch: list[_Waiter]) -> Computed:
        executions: list[Execution] = []
        started = time.perf_counter()
        outcomes, calls = self._outcomes(batch, executions)
        return outcomes, executions, calls, started, time.perf_counter()

    def _outcomes(
        self, batch: list[_Waiter], executions: list[Execution]
    ) -> tuple[list[Outcome], int]:
        """Return an outcome for each request, and the number of calls that took."""
        if len(batch) == 1:
            return [self._call_alone(batch[0].request, executions)], 1
        requests = [waiter.request for waiter in batch]
        try:
            return [*self._call_jointly(requests, executions)], 1
        except BaseException as error:
            logger.warning(
                "a call for %d requests failed, repeating them one by one: %s",
                len(requests),
                _one_line(error),
            )
        return [self._call_alone(r, executions) for r in requests], 1 + len(requests)

    def _call_jointly(self, requests: list[Request], executions: list[Execution]) -> list[Outputs]:
        clock = time.perf_counter
        started = clock()
        inputs = {
            name: np.concatenate([request.inputs[name] for request in requests])
            for name in requests[0].inputs
        }
        joined = clock()
        outputs = self._model.call(requests[0].signature, inputs)
        computed = clock()
        parts = _split(outputs, requests)
        rows = sum(request.rows or 0 for request in requests)
        executions.append((rows, joined - started, computed - joined, clock() - computed))
        return parts

    def _call_alone(self, request: Request, executions: list[Execution]) -> Outcome:
        started = time.perf_counter()
        try:
            outputs = self._model.call(request.signature, request.inputs)
        except BaseException as error:  # whatever it is, a client waits for an answer
            user_error = type(error).__name__ == "InvalidArgumentError"
            if not user_error:
                logger.exception("the model raised")
            return CallFailed(_one_line(error), user_error=user_error)
        executions.append((_rows(request), 0.0, time.perf_counter() - started, 0.0))
        return outputs

    def _deliver(
        self, batch: list[_Waiter], computed: Computed, loop: asyncio.AbstractEventLoop
    ) -> None:
        on_loop = bool(self._queue) and self._is_quick(self._queue[0])
        if not on_loop:
            self._start_next(loop)  # first, so that the thread computes while answers are written
        outcomes, executions, calls, started, ended = computed
        signature = batch[0].request.signature
        seconds = ended - started
        before = self._typical.get(signature, seconds)
        self._typical[signature] = before + (seconds - before) * WEIGHT
        statistics = self.statistics
        statistics.calls += calls
        for execution in executions:
            statistics.executed(*execution)
            self._size(signature).called(execution[0], sum(execution[1:]))
        for waiter, outcome in zip(batch, outcomes, strict=True):
            answer, queued = waiter.answer, waiter.queued
            statistics.queue_seconds += started - queued
            if isinstance(outcome, CallFailed):
                statistics.failed += 1
                statistics.fail_seconds += ended - queued
                if not answer.cancelled():
                    answer.set_exception(outcome)
            else:
                statistics.succeeded += 1
                statistics.success_seconds += ended - queued
                statistics.rows += _rows(waiter.request)
                if not answer.cancelled():
                    answer.set_result(outcome)
        if on_loop:
            loop.call_soon(self._start_next, loop)  # last, so that these answers are written first


def _rows(request: Request) -> int:
    return 1 if request.rows is None else request.rows


def _can_join(first: Request, other: Request) -> bool:
    return (
        first.rows is not None
        and other.rows is not None
        and first.signature == other.signature
        and all(
            array.dtype == other.inputs[name].dtype
            and array.shape[1:] == other.inputs[name].shape[1:]
            for name, array in first.inputs.items()
        )
    )


def _split(outputs: Outputs, requests: list[Request]) -> list[Outputs]:
    """Cut joint outputs into each request's rows. Raises ValueError if they are not by row."""
    rows = sum(request.rows or 0 for request in requests)
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ValueError(f"output {name!r} has shape {array.shape} for {rows} rows")
    parts, start = [], 0
    for request in requests:
        end = start + (request.rows or 0)
        parts.append({name: array[start:end] for name, array in outputs.items()})
        start = end
    return parts


def _one_line(error: BaseException) -> str:
    """Return what an error says, without the stack that TensorFlow puts into its messages."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = " ".join(" ".join(line for line in lines if not line.startswith(_OF_A_STACK)).split())
    return said or type(error).__name__
