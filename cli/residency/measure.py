"""Ask a model that rests on the disk, in RAM or loaded, and read what each costs."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any, Final, Literal

from ..subjects import released, unload
from .results import BenchFailed, Row

if TYPE_CHECKING:
    from modelsup.client import Client, ModelInfo, WorkerInfo
    from modelsup.client.views import SignatureInfo

    from ..subjects import Say, Subject

    Place = Literal["disk", "ram", "gpu"]

PLACES: Final[tuple[Place, ...]] = ("disk", "ram", "gpu")
SETTLE_SECONDS: Final = 30.0  # the most until a model rests where it is to
POLL_SECONDS: Final = 0.02
REST_SECONDS: Final = 0.5  # before each request, for what follows an unload
STAY: Final = 600.0  # seconds that a worker stays after an answer, so that it can be weighed


def measure(
    client: Client, model: str, subject: Subject, body: bytes | None, rounds: int, say: Say
) -> tuple[list[Row], list[str]]:
    """Return a row for each place, and notes. `model` is what the user calls it.

    Without a `body` (JSON) the inputs are ones, in the smallest shape that the model takes. Raises
    ModelsupError, BenchFailed. Nothing of it stays loaded, whatever happens.
    """
    with released(client, subject, say):
        notes = _prepare(client, model, subject, say)
        question = _Question(client, subject.name, body)
        rows = []
        for place in PLACES:
            say(f"{model}: {rounds} rounds, kept {_WORDS[place]}")
            client.add_model(subject.name, keep=place, ttl=STAY)
            row, note = _row(client, model, subject, place, question, rounds)
            rows.append(row)
            notes += note
    return rows, notes


_WORDS: Final = {"disk": "on the disk", "ram": "in RAM", "gpu": "loaded"}


class _Question:
    """The request that each place is asked."""

    def __init__(self, client: Client, name: str, body: bytes | None) -> None:
        self._client = client
        self._name = name
        self._body = body
        self._inputs = {} if body is not None else _inputs(client.model(name))

    def ask(self) -> float:
        """Return the seconds until the answer. Raises ModelsupError."""
        started = time.perf_counter()
        if self._body is None:
            self._client.predict(self._name, self._inputs)
        else:
            self._client.predict_json(self._name, self._body)
        return time.perf_counter() - started


def _prepare(client: Client, model: str, subject: Subject, say: Say) -> list[str]:
    """Load the model once, and make its prepared form; return why there is none."""
    from modelsup.client import NotPreparable, PrepareFailed

    say(f"{model}: loading it once")
    client.load(
        subject.name, subject.source, runtime=subject.runtime, wait=subject.wait, **subject.options
    )
    say(f"{model}: preparing it")
    try:
        client.prepare(subject.name)
    except (NotPreparable, PrepareFailed) as error:
        return [f"{model} is loaded from its own files in each place: {error}"]
    return []


def _row(
    client: Client, model: str, subject: Subject, place: Place, question: _Question, rounds: int
) -> tuple[Row, list[str]]:
    name, notes = subject.name, []
    seconds, peaks, gpu_peaks = [], [], []
    if place == "gpu":
        unload(client, name)
        client.load(name, wait=subject.wait)
        question.ask()  # it has answered before, as a model does that is kept loaded
    idle, gpu_idle = _weight(client, _worker(client, name)) if place == "gpu" else (0, None)
    for _ in range(rounds):
        if place != "gpu":
            unload(client, name)
        if place == "ram" and not _rests(client, name, "ram"):
            notes = [f"{model} does not stay in RAM: no prepared form, or `keep_ram` is too small"]
        if place == "ram":
            idle = client.model(name).prepared.bytes if not notes else 0
        time.sleep(REST_SECONDS)
        seconds.append(question.ask())
        worker = _worker(client, name)
        now, on_gpu = _weight(client, worker)
        peaks.append(max(now, worker.memory_stages.get("peak", 0)))
        gpu_peaks += [] if on_gpu is None else [on_gpu]
    if place != "gpu" and gpu_peaks:
        gpu_idle = 0
    row = Row(
        model=model,
        place=place,
        seconds=statistics.median(seconds),
        idle_bytes=idle,
        peak_bytes=max(peaks),
        gpu_idle_bytes=gpu_idle,
        gpu_peak_bytes=max(gpu_peaks, default=None),
    )
    return row, notes


def _rests(client: Client, name: str, place: Place) -> bool:
    """Wait until the model is at that place; return whether it came there."""
    found = client.model(name)
    if found.prepared.state != "ready":
        return False
    deadline = time.monotonic() + SETTLE_SECONDS
    while client.model(name).residency != place:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def _worker(client: Client, name: str) -> WorkerInfo:
    worker = next((w for w in client.workers() if w.model == name), None)
    if worker is None:
        raise BenchFailed("the worker ended while it was measured; `modelsup events` may say why")
    return worker


def _weight(client: Client, worker: WorkerInfo) -> tuple[int, int | None]:
    """Return the private host memory of a worker, and what it has of its GPU."""
    host = worker.memory.uss_bytes if worker.memory is not None else 0
    for gpu in client.memory().gpus:
        for process in gpu.processes or ():
            if process.worker == worker.id:
                return host, process.memory_bytes
    return host, None


def _inputs(model: ModelInfo) -> dict[str, Any]:
    """Return ones for each input of the model's first signature. Raises BenchFailed."""
    signatures = model.signatures or ()
    if not signatures:
        raise BenchFailed(f"it is not known what {model.name} takes; give a request with --body")
    return {tensor.name: _ones(tensor) for tensor in _default(signatures).inputs}


def _default(signatures: tuple[SignatureInfo, ...]) -> SignatureInfo:
    return next((s for s in signatures if s.name == "serving_default"), signatures[0])


def _ones(tensor: Any) -> Any:
    import numpy as np

    shape = [1 if size is None or size < 0 else size for size in tensor.shape or ()]
    if tensor.dtype == "string":
        return np.full(shape, b"1", object)
    return np.ones(shape, tensor.dtype)
