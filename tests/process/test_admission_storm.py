"""Many clients ask at random for more models than two GPUs hold: no request is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from modelsup.client import Client, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 10**9
GPUS = {"GPU-a": 16 * GB, "GPU-b": 16 * GB}
RESERVED = GB // 4
BUDGET = int(16 * GB * 0.95)
SIZES = [3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 7]  # GB; together nearly twice what there is
SECONDS = float(os.environ.get("MODELSUP_TEST_STORM_SECONDS", "15"))
LAST = "last"  # the model whose end is the last event that counts
BODY = {"instances": [[1.0]]}


class Sampler(threading.Thread):
    """Asks all the time whether more is charged, or in use, than there is."""

    def __init__(self, supervisor: Any, gpus: Any) -> None:
        super().__init__()
        self._supervisor = supervisor
        self._gpus = gpus
        self._over = threading.Event()
        self.samples = 0
        self.highest: Counter[str] = Counter()  # bytes in use by UUID
        self.faults: list[str] = []

    def run(self) -> None:
        """Sample until told to stop."""
        while not self._over.wait(0.02):
            self.samples += 1
            memory = self._supervisor.client.memory()
            used = in_use(self._gpus)
            self.highest |= used
            for gpu in memory.gpus:
                budgeted = gpu.charged_bytes <= gpu.budget_bytes == BUDGET
                if not budgeted or used[gpu.uuid] > gpu.total_bytes - RESERVED:
                    self.faults.append(f"{gpu}, {used} in use")
            if memory.host.charged_bytes > memory.host.budget_bytes:
                self.faults.append(f"host: {memory.host}")

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self.join()


def in_use(gpus: Any) -> Counter[str]:
    """Return what live processes hold, by UUID."""
    used: Counter[str] = Counter()
    for line in gpus.path.read_text().splitlines():
        match line.split():
            case ["process", pid, uuid, size] if os.path.exists(f"/proc/{pid}"):  # noqa: PTH110
                used[uuid] += int(size)
    return used


def ask_until(end: float, supervisor: Any, models: list[str], seed: int) -> Counter[str]:
    """Ask for models at random; where told to come back later, do. Any other error is raised."""
    rng, outcomes, pause = random.Random(seed), Counter[str](), threading.Event()
    while time.monotonic() < end:
        model = rng.choice(models)
        while True:
            try:
                answer = supervisor.client.predict_json(model, BODY)
                break
            except Unavailable as error:
                outcomes["told to come back"] += 1
                pause.wait(error.retry_after)
        assert answer == {"predictions": [[1.0]]}
        outcomes["answered"] += 1
        outcomes[model] += 1
    return outcomes


def follow_events(client: Any, last: str) -> list[Any]:
    """Return all events from now on until the worker of the model `last` has gone."""
    events = []
    for event in client.events(follow=True):
        events.append(event)
        if event.message == "worker gone" and event.facts["model"] == last:
            return events
    raise AssertionError("the stream of events ended")


def assert_explained(events: list[Any]) -> None:
    """Every eviction has a reason, and every end of a worker gave all of its memory back."""
    evicted = {event.facts["worker"]: event.facts for event in events if event.kind == "eviction"}
    ended = {event.facts["worker"]: event.facts for event in events if "verified" in event.facts}
    assert len(evicted) > len(SIZES)
    assert {worker for worker in evicted if not evicted[worker]["reason"]} == set()
    assert set(evicted) <= set(ended)
    for facts in ended.values():
        assert facts["verified"], facts
        assert facts.get("gpu_freed_bytes", 0) == size_of(facts["model"])
    assert {event.message for event in events if event.kind in {"alarm", "restart"}} == set()


def size_of(model: str) -> int:
    """Return the bytes that a model takes on its GPU."""
    return SIZES[int(model[1:])] * GB if model != LAST else 0


def settled(client: Any) -> bool:
    """Tell whether the last eviction is over: one may outlive the wish that it was for."""
    return all(worker.state == "ready" for worker in client.workers())


def test_more_models_than_memory(
    start_supervisor: Callable[..., Any],
    echo_model: Callable[..., str],
    fake_gpus: Any,
    background: Callable[..., Any],
) -> None:
    fake_gpus.set(*(f"device {uuid} {total} {RESERVED}" for uuid, total in GPUS.items()))
    flags = ("--gpu-context-memory", "0", "--minimum-residence", "0.05", "--queue-timeout", "60")
    supervisor = start_supervisor(*flags, environment=fake_gpus.environment)
    client = supervisor.client
    for number, size in enumerate(SIZES):
        options = {"fake_gpu": str(fake_gpus.path), "on_load": [f"gpu:{size * GB}"]}
        source = echo_model(f"m{number}", **options)
        client.add_model(f"m{number}", source, gpu_memory=size * GB)
    models = [model.name for model in client.models()]

    following = background(follow_events, Client(supervisor.url), LAST)
    sampler = Sampler(supervisor, fake_gpus)
    sampler.start()
    try:
        end = time.monotonic() + SECONDS
        lives = [background(ask_until, end, supervisor, models, seed) for seed in range(8)]
        outcomes = sum((life.result() for life in lives), Counter[str]())
    finally:
        sampler.stop()

    assert sampler.faults == []
    assert sampler.samples > SECONDS
    assert set(models) <= set(outcomes), outcomes  # nobody starved
    assert all(sampler.highest[uuid] > 16 * GB // 2 for uuid in GPUS)  # both were put to use
    supervisor.until(lambda: settled(client))
    for worker in client.workers():
        receipt = client.unload(worker.model)
        assert receipt.verified
        assert receipt.freed.gpu_bytes == {worker.device: size_of(worker.model)}
    assert client.workers() == []
    client.load(LAST, runtime="echo", device="cpu")
    client.unload(LAST)
    assert_explained(following.result())
    log = supervisor.log()
    assert "Traceback" not in log
    assert " ERROR " not in log
