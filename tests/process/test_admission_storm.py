"""Many clients ask at random for more models than two GPUs hold: no request is lost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from modelsup.client import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

GB = 10**9
GPUS = {"GPU-a": 16 * GB, "GPU-b": 16 * GB}
RESERVED = GB // 4
BUDGET = int(16 * GB * 0.95)
SIZES = [3, 3, 4, 4, 4, 5, 5, 5, 6, 6, 7, 7]  # GB; together nearly twice what there is
SECONDS = float(os.environ.get("MODELSUP_TEST_STORM_SECONDS", "15"))
BODY = {"instances": [[1.0]]}


class Sampler(threading.Thread):
    """Looks all the time whether more is charged, or in use, than there is."""

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
            charged: Counter[str] = Counter()
            for worker in self._supervisor.client.workers():
                charged.update(worker.charges)
            used = in_use(self._gpus)
            self.highest |= used
            for uuid, total in GPUS.items():
                if charged[uuid] > BUDGET or used[uuid] > total - RESERVED:
                    self.faults.append(f"{uuid}: {charged[uuid]} charged, {used[uuid]} in use")

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
        assert receipt.freed.gpu_bytes == {worker.device: SIZES[int(worker.model[1:])] * GB}
    assert client.workers() == []
    log = supervisor.log()
    assert log.count("evicting") > len(SIZES)
    assert "not back" not in log
    assert "Traceback" not in log
    assert " ERROR " not in log
