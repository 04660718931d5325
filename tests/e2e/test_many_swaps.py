"""Swap after swap under load: no request is lost, and nothing is left over."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import psutil
from modelsup.client import Client

from tests.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Supervisor

SWAPS = 200
GROWTH = 5_000_000  # bytes of the supervisor's own memory
MODELS = ("red", "green", "blue")


class Load(threading.Thread):
    """Predicts on one model without a pause until `stop`; `failures` must stay empty."""

    def __init__(self, url: str, model: str) -> None:
        super().__init__()
        self.answers = 0
        self.failures: list[BaseException | np.ndarray] = []
        self._client = Client(url, timeout=30)
        self._model = model
        self._stopped = threading.Event()

    def run(self) -> None:
        """Compare every answer with what was asked."""
        while not self._stopped.is_set():
            x = np.full((1, 2), self.answers, dtype=np.float32)
            try:
                y = self._client.predict(self._model, x)
            except Exception as error:
                self.failures.append(error)
                return
            if not isinstance(y, np.ndarray) or not np.array_equal(y, x):
                self.failures.append(np.asarray(y))
            self.answers += 1

    def stop(self) -> None:
        """End it, and wait for the end."""
        self._stopped.set()
        self.join()
        self._client.close()


def swap_and_ask(url: str, client_id: str, swaps: int) -> None:
    """Swap a client from model to model; each must answer at once, and the old one be gone."""
    with Client(url, timeout=30) as client, client.session(client_id) as session:
        for number in range(swaps):
            receipt = session.swap(MODELS[number % len(MODELS)], runtime="echo")
            y = session.predict([[float(number)]])
            assert np.asarray(y).tolist() == [[float(number)]]
            assert receipt is None or (receipt.verified and not receipt.in_flight_aborted)


def zombies(pid: int) -> list[psutil.Process]:
    """Return the children that nobody has collected."""
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if child.status() == psutil.STATUS_ZOMBIE]


def test_200_swaps_under_load_lose_no_request_and_leave_nothing(supervisor: Supervisor) -> None:
    supervisor.client.load("steady", runtime="echo")
    load = Load(supervisor.url, "steady")
    load.start()
    try:
        swap_and_ask(supervisor.url, "warm-up", 10)
        processes, files = len(supervisor.tree()), supervisor.open_files()
        memory = psutil.Process(supervisor.pid).memory_full_info().uss

        with ThreadPoolExecutor(2) as pool:
            jobs = [
                pool.submit(swap_and_ask, supervisor.url, name, SWAPS // 2) for name in ("a", "b")
            ]
        for job in jobs:
            job.result()

        grown = psutil.Process(supervisor.pid).memory_full_info().uss - memory
    finally:
        load.stop()
    assert load.failures == []
    assert load.answers > SWAPS
    assert grown < GROWTH
    assert zombies(supervisor.pid) == []
    assert len(supervisor.tree()) == processes
    # A connection of a client that has just closed it may still be open at this end.
    wait_until(lambda: supervisor.open_files() <= files, 2, lambda: "descriptors are left")
    (worker,) = supervisor.client.workers()
    assert (worker.model, worker.restarts) == ("steady", 0)
    assert worker.requests == load.answers


def test_a_model_that_is_unloaded_again_and_again_loses_no_request(
    supervisor: Supervisor, echo_model: Callable[..., str]
) -> None:
    """Requests come while it drains, stops and loads: each waits, and is answered."""
    supervisor.client.load("m", echo_model("m", on_call=["sleep:0.002"]))
    loads = [Load(supervisor.url, "m") for _ in range(4)]
    for load in loads:
        load.start()
    try:
        for _ in range(20):
            supervisor.client.load("m")
            receipt = supervisor.client.unload("m")
            assert receipt.outcome == "drained"
            assert receipt.in_flight_aborted == 0
    finally:
        for load in loads:
            load.stop()
    assert [load.failures for load in loads] == [[], [], [], []]
    assert all(load.answers > 10 for load in loads)
