"""Requests that wait share a call; nobody gets another's rows, or pays for another's mistake."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.worker.batch_rules import BatchRules
from modelsup.worker.batching import Batcher, CallFailed
from modelsup.worker.codecs.base import Request
from modelsup.worker.contract import Signature, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

Array = np.ndarray[Any, Any]
X = TensorInfo("x", "float32", (None, None))


class InvalidArgumentError(Exception):
    """Called like TensorFlow's error for a bad input."""


class Doubler:
    """Doubles its input; keeps its calls; waits for `gate` in each; refuses negative numbers."""

    def __init__(self) -> None:
        self.signatures = {"serving_default": Signature("serving_default", (X,), (X,), True)}
        self.calls: list[tuple[str, list[float]]] = []
        self.entered = threading.Semaphore(0)
        self.gate = threading.Semaphore(1000)
        self.threads: set[int] = set()

    def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        self.calls.append((signature, x.reshape(-1).tolist()))
        self.threads.add(threading.get_ident())
        self.entered.release()
        self.gate.acquire()
        if signature == "total":
            return {"y": np.asarray(x.sum())}
        if (x < 0).any():
            raise InvalidArgumentError("x must\n not be negative")
        if np.isnan(x).any():
            raise StopIteration
        return {"y": x * 2}


def request(*values: float, signature: str = "serving_default", **more: Any) -> Request:
    x = np.array(values, np.float32).reshape(-1, 1)
    return Request(signature, {"x": x}, more.get("rows", len(x)))


def run(main: Callable[[Doubler], Coroutine[Any, Any, None]]) -> Doubler:
    model = Doubler()
    asyncio.run(main(model))
    return model


async def entered(model: Doubler) -> None:
    await asyncio.get_running_loop().run_in_executor(None, model.entered.acquire)


async def while_one_runs(model: Doubler, *requests: Request, **rules: Any) -> list[Any]:
    """Let one call begin, queue `requests` behind it, and return what became of them."""
    batcher = Batcher(model, BatchRules(**rules))
    model.gate = threading.Semaphore(0)
    first = batcher.submit(request(0.5))
    await entered(model)
    answers = [batcher.submit(r) for r in requests]
    assert batcher.waiting == len(requests)
    model.gate.release(1000)
    assert (await first)["y"].tolist() == [[1]]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert model.calls.pop(0) == ("serving_default", [0.5])
    return [o if isinstance(o, BaseException) else o["y"].reshape(-1).tolist() for o in outcomes]


def test_one_request_passes_straight_through() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules())
        alone = request(1, 2)
        assert (await batcher.submit(alone))["y"].tolist() == [[2], [4]]
        statistics = batcher.statistics
        assert (statistics.calls, statistics.rows) == (1, 2)
        assert (statistics.succeeded, statistics.failed) == (1, 0)
        assert 0 < statistics.compute.computing <= statistics.success_seconds
        assert statistics.by_size.keys() == {2}
        assert statistics.last_call > 0
        assert batcher.waiting == 0

    run(main)


def test_requests_that_arrive_together_share_the_first_call() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules())
        answers = await asyncio.gather(*(batcher.submit(request(n)) for n in range(5)))
        assert [a["y"].item() for a in answers] == [0, 2, 4, 6, 8]
        assert batcher.statistics.calls == 1

    assert run(main).calls == [("serving_default", [0, 1, 2, 3, 4])]


def test_requests_gather_while_a_call_runs() -> None:
    async def main(model: Doubler) -> None:
        outcomes = await while_one_runs(model, request(1), request(), request(2, 3))
        assert outcomes == [[2], [], [4, 6]]

    model = run(main)
    assert model.calls == [("serving_default", [1, 2, 3])]
    assert len(model.threads) == 1


def test_a_call_takes_no_more_than_the_most_rows() -> None:
    async def main(model: Doubler) -> None:
        big = request(*range(5))
        outcomes = await while_one_runs(
            model, request(1, 2), request(3), request(4), big, max_rows=3
        )
        assert outcomes == [[2, 4], [6], [8], [0, 2, 4, 6, 8]]

    calls = [values for _, values in run(main).calls]
    assert calls == [[1, 2, 3], [4], [0, 1, 2, 3, 4]]


def test_a_preferred_size_goes_first() -> None:
    async def main(model: Doubler) -> None:
        requests = (request(n) for n in range(6))
        outcomes = await while_one_runs(model, *requests, preferred=(2, 4))
        assert outcomes == [[0], [2], [4], [6], [8], [10]]

    assert [values for _, values in run(main).calls] == [[0, 1, 2, 3], [4, 5]]


def test_requests_wait_for_others_until_a_call_is_full() -> None:
    """The delay is longer than the test may take: it is the third request that begins the call."""

    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules(max_rows=3, max_delay=3600.0))
        first = batcher.submit(request(1, 2))
        other = batcher.submit(Request("serving_default", {"x": np.ones((1, 2), np.float32)}, 1))
        for _ in range(10):
            await asyncio.sleep(0)
        assert (model.calls, batcher.waiting) == ([], 2)
        last = batcher.submit(request(3))
        assert (await first)["y"].reshape(-1).tolist() == [2, 4]
        assert (await last)["y"].item() == 6
        assert (other.done(), batcher.waiting) == (False, 1)

    assert [values for _, values in run(main).calls] == [[1, 2, 3]]


def test_what_is_full_does_not_wait_behind_what_waits_for_others() -> None:
    wide = Request("serving_default", {"x": np.ones((2, 2), np.float32)}, 2)

    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules(max_rows=2, max_delay=3600.0))
        waiting = batcher.submit(request(1))
        assert (await batcher.submit(wide))["y"].shape == (2, 2)
        assert (await batcher.submit(request(2, rows=None)))["y"].item() == 4
        assert not waiting.done()

    run(main)


def test_a_request_that_nobody_joins_goes_after_its_delay() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules(max_delay=0.01))
        assert (await batcher.submit(request(1)))["y"].item() == 2

    run(main)


def test_a_request_that_is_cancelled_while_it_waits_for_others_is_dropped() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules(max_rows=2, max_delay=3600.0))
        gone = batcher.submit(request(1))
        await asyncio.sleep(0)
        gone.cancel()
        answers = [batcher.submit(request(n)) for n in (2, 3)]
        assert [(await answer)["y"].item() for answer in answers] == [4, 6]

    assert [values for _, values in run(main).calls] == [[2, 3]]


def test_unlike_requests_never_mix_and_the_oldest_goes_first() -> None:
    wide = Request("serving_default", {"x": np.ones((1, 2), np.float32)}, 1)
    double = Request("serving_default", {"x": np.ones((1, 1), np.float64)}, 1)

    async def main(model: Doubler) -> None:
        outcomes = await while_one_runs(model, request(1), wide, double, request(2))
        assert outcomes == [[2], [2, 2], [2], [4]]

    assert [values for _, values in run(main).calls] == [[1, 2], [1, 1], [1]]


def test_signatures_never_mix() -> None:
    async def main(model: Doubler) -> None:
        total = request(1, 2, signature="total")
        assert await while_one_runs(model, total, request(3)) == [[3], [6]]

    assert [name for name, _ in run(main).calls] == ["total", "serving_default"]


def test_requests_without_rows_go_alone() -> None:
    async def main(model: Doubler) -> None:
        requests = (request(1, rows=None), request(2, rows=None), request(3), request(4))
        assert await while_one_runs(model, *requests) == [[2], [4], [6], [8]]

    assert [values for _, values in run(main).calls] == [[1], [2], [3, 4]]


def test_a_bad_request_fails_alone() -> None:
    async def main(model: Doubler) -> None:
        first, bad, last = await while_one_runs(model, request(1), request(-1), request(2))
        assert (first, last) == ([2], [4])
        assert isinstance(bad, CallFailed)
        assert bad.user_error
        assert str(bad) == "x must not be negative"

    assert [values for _, values in run(main).calls] == [[1, -1, 2], [1], [-1], [2]]


def test_outputs_that_are_not_by_row_are_computed_one_by_one() -> None:
    """A signature may claim to be batchable and sum over the batch: then rows must not mix."""

    async def main(model: Doubler) -> None:
        totals = [request(1, 2, signature="total"), request(3, signature="total")]
        assert await while_one_runs(model, *totals) == [[3], [3]]

    run(main)


def test_any_exception_reaches_the_client_and_the_model_lives_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A future refuses StopIteration: a model that raised it left its client waiting forever."""

    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules())
        with pytest.raises(CallFailed, match="StopIteration") as caught:
            await batcher.submit(request(float("nan")))
        assert not caught.value.user_error
        assert (await batcher.submit(request(1)))["y"].item() == 2
        assert (batcher.statistics.succeeded, batcher.statistics.failed) == (1, 1)

    run(main)
    assert "the model raised" in caplog.text


def test_a_cancelled_request_is_dropped_before_it_is_computed() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules())
        model.gate = threading.Semaphore(0)
        running = batcher.submit(request(1))
        await entered(model)
        waiting = [batcher.submit(request(n)) for n in (2, 3)]
        running.cancel()
        waiting[0].cancel()
        model.gate.release(2)
        assert (await waiting[1])["y"].item() == 6
        assert batcher.statistics.succeeded == 2

    assert [values for _, values in run(main).calls] == [[1], [3]]


def test_the_queue_may_hold_nothing_but_cancelled_requests() -> None:
    async def main(model: Doubler) -> None:
        batcher = Batcher(model, BatchRules())
        batcher.submit(request(1)).cancel()
        await asyncio.sleep(0)  # one turn of the loop, in which the next call would begin
        assert batcher.waiting == 0
        assert (await batcher.submit(request(2)))["y"].item() == 4

    assert [values for _, values in run(main).calls] == [[2]]


def test_the_stack_in_a_frameworks_message_is_left_out() -> None:
    message = """Graph execution error:

Detected at node ParseExample defined at (most recent call last):
  File "<frozen runpy>", line 198, in _run_module_as_main

  File "somewhere/program.py", line 3, in main
Feature: x is required but could not be found.
\t [[{{node ParseExample}}]] [Op:__inference_pruned_308]"""

    class Picky(Doubler):
        def call(self, signature: str, inputs: Mapping[str, Array]) -> dict[str, Array]:
            raise InvalidArgumentError(message)

    async def main() -> None:
        with pytest.raises(CallFailed) as error:
            await Batcher(Picky(), BatchRules()).submit(request(1))
        assert str(error.value) == "Feature: x is required but could not be found."
        assert error.value.user_error

    asyncio.run(main())
