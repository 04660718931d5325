"""The ways to keep the readers, and what each costs: time to the answer, RAM and GPU memory."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tree_memory import tree_memory
from .charts import KINDS
from .models import CLASSIFIER, READERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from modelsup.client import Client

    from ..local_supervisor import LocalSupervisor
    from .charts import Chart
    from .pipeline import Pipeline, Reading

SAMPLE_SECONDS = 0.02  # between two looks at the memory while a chart is read
GONE_SECONDS = 30.0  # the most until a reader that is not kept loaded is unloaded
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Mode:
    """A way to keep the readers: its name, and the options that ask for it."""

    name: str
    options: dict[str, Any]
    loaded: bool = False


MODES = (
    Mode("in a file, unprepared", {"keep": "disk", "prepare": "off"}),
    Mode("in a file", {"keep": "disk", "prepare": "now"}),
    Mode("in RAM", {"keep": "ram", "prepare": "now"}),
    Mode("loaded", {"keep": "gpu", "prepare": "now"}, loaded=True),
)


@dataclass(frozen=True)
class Figures:
    """What a mode took. Seconds until a reader's answer; bytes of the whole tree of processes.

    Idle is between two charts, and `growth` that at the end of the run less that at its
    beginning, without page cache. The figures of the GPU are None where there is none.
    """

    mode: str
    p50: float
    p95: float
    ram_idle: int
    ram_peak: int
    gpu_idle: int | None
    gpu_peak: int | None
    growth: int
    readings: list[Reading]


def measure(
    mode: Mode,
    supervisor: LocalSupervisor,
    client: Client,
    pipeline: Pipeline,
    charts: Sequence[Chart],
) -> Figures:
    """Let the pipeline read the charts in a mode. Raises ModelsupError, TimeoutError."""
    for name in READERS:
        client.add_model(name, **mode.options)
        if mode.loaded:
            client.load(name)
    if mode.loaded:
        for chart in charts[: len(KINDS)]:  # the first calls take memory that stays
            pipeline.read(chart.png)
    meter = _Meter(supervisor, client)
    readings, idle = [], []
    for chart in charts:
        if not mode.loaded:
            _wait_until_gone(client)
        idle.append(meter.look())
        with meter.watching():
            readings.append(pipeline.read(chart.png))
    if not mode.loaded:
        _wait_until_gone(client)
    last = meter.look()
    first = idle[len(idle) // 4]  # caches are full by then
    seconds = [taken for reading in readings for taken in reading.seconds.values()]
    return Figures(
        mode=mode.name,
        p50=float(np.median(seconds)),
        p95=float(np.percentile(seconds, 95)),
        ram_idle=last.ram,
        ram_peak=meter.ram_peak,
        gpu_idle=last.gpu,
        gpu_peak=meter.gpu_peak,
        growth=last.anonymous - first.anonymous,
        readings=readings,
    )


def _wait_until_gone(client: Client) -> None:
    """Wait until only the classifier is loaded."""
    deadline = time.monotonic() + GONE_SECONDS
    while any(worker.model != CLASSIFIER for worker in client.workers()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a reader was not unloaded within {GONE_SECONDS:.0f} s")
        time.sleep(POLL_SECONDS)


@dataclass(frozen=True)
class _Look:
    """Memory at one moment, in bytes."""

    ram: int
    anonymous: int
    gpu: int | None


class _Meter:
    """Weighs the supervisor with all that it started, and what its workers have of the GPUs."""

    def __init__(self, supervisor: LocalSupervisor, client: Client) -> None:
        self._supervisor = supervisor
        self._client = client
        self.ram_peak = 0
        self.gpu_peak: int | None = None

    def look(self) -> _Look:
        """Weigh it now; the peaks are the most that was seen."""
        memory = tree_memory([self._supervisor.pid])
        gpus = [gpu.workers_bytes or 0 for gpu in self._client.memory().gpus]
        self.ram_peak = max(self.ram_peak, memory.pss)
        if gpus:
            self.gpu_peak = max(self.gpu_peak or 0, sum(gpus))
        return _Look(memory.pss, memory.anonymous, sum(gpus) if gpus else None)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look again and again while the block runs."""
        done = threading.Event()
        thread = threading.Thread(target=self._watch, args=(done,))
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _watch(self, done: threading.Event) -> None:
        while not done.wait(SAMPLE_SECONDS):
            self.look()
