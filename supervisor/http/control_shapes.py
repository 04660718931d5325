"""The shapes of the control API's answers that are more than the fleet's own views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NotRequired, TypedDict

from ..domain import ReceiptShape
from ..fleet.views import WorkerView

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..fleet.events import Event
    from ..fleet.views import ClientView, FormView, ModelView
    from .control_ports import Forkserver


class ModelCounts(TypedDict):
    """How many models there are."""

    known: int
    loaded: int


class Status(TypedDict):
    """The supervisor itself."""

    version: str
    pid: int
    url: str
    grpc: str | None
    state_dir: str
    started_at: float
    uptime_seconds: float
    state: Literal["running", "stopping"]
    models: ModelCounts
    workers: int
    clients: int
    forkservers: list[Forkserver]


class Ending(TypedDict):
    """The supervisor ends."""

    state: Literal["stopping"]
    pid: int


class KeptEvents(TypedDict):
    """What happened lately."""

    events: list[Event]
    last_id: int


class Catalogue(TypedDict):
    """All models."""

    models: list[ModelView]


class Removed(TypedDict):
    """A model is no longer in the catalogue."""

    model: str
    removed: Literal[True]


class LoadedMemory(TypedDict):
    """What a worker took. Bytes; those of GPUs by UUID."""

    host_bytes: int
    gpu_bytes: dict[str, int]


class LoadAnswer(TypedDict):
    """The answer to a load that is ready."""

    model: str
    version: str
    worker: str
    workers: Sequence[str]
    state: Literal["ready"]
    already_loaded: bool
    seconds: dict[str, float]
    memory: LoadedMemory
    warnings: Sequence[str]


class LoadGoesOn(TypedDict):
    """A load that is not ready within the time given."""

    model: str
    state: str
    status_url: str


class PrepareAnswer(TypedDict):
    """A model has a prepared form; `form` is its name in the cache."""

    model: str
    state: Literal["ready"]
    form: str | None
    bytes: int


class Cache(TypedDict):
    """The prepared forms in the cache, the one used last first."""

    forms: list[FormView]
    bytes: int


class RemovedForms(TypedDict):
    """Prepared forms that are no longer in the cache, and the bytes that they took."""

    removed: list[FormView]
    bytes: int


class UnloadAnswer(ReceiptShape):
    """One receipt for all workers of a model; `workers` has those of each, if there were more."""

    workers: NotRequired[list[ReceiptShape]]


class ScaleAnswer(TypedDict):
    """The answer to a change of the number of workers; `receipt` is of those that it ended."""

    model: str
    replicas: int
    workers: Sequence[str]
    receipt: UnloadAnswer | None
    seconds: float


class ProcessMemory(TypedDict):
    """The memory of one process."""

    pss_bytes: int
    uss_bytes: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class ShownWorker(WorkerView):
    """A worker, and its memory while it lives."""

    memory: ProcessMemory | None = None


class Workers(TypedDict):
    """All workers."""

    workers: list[ShownWorker]


class Clients(TypedDict):
    """All clients."""

    clients: list[ClientView]


class SwapAnswer(TypedDict):
    """The answer to a swap."""

    client: str
    model: str
    version: str
    worker: str
    previous: str | None
    receipt: ReceiptShape | None
    kept: str | None
    seconds: dict[str, float]


class ReleaseAnswer(TypedDict):
    """The answer to a release."""

    client: str
    model: str
    receipt: ReceiptShape | None
    kept: str | None


class WorkerMemory(ProcessMemory):
    """The memory of one worker."""

    id: str
    model: str


class HostLedger(TypedDict):
    """The host's memory in bytes: measured, budgeted and charged."""

    total_bytes: int
    available_bytes: int
    limit_bytes: int
    budget_bytes: int
    charged_bytes: int
    own_bytes: int
    kept_bytes: int
    supervisor_bytes: int
    forkservers_bytes: int
    workers_bytes: int
    tree_bytes: int


class GpuUser(TypedDict):
    """A process on a GPU."""

    pid: int
    memory_bytes: int | None
    worker: str | None


class GpuLedger(TypedDict):
    """A GPU's memory in bytes; `reason` says why a figure is null."""

    uuid: str
    name: str
    index: int
    total_bytes: int
    budget_bytes: int | None
    charged_bytes: int
    used_bytes: int | None
    free_bytes: int | None
    workers_bytes: int | None
    others_bytes: int | None
    processes: list[GpuUser] | None
    reason: str | None


class MemoryAnswer(TypedDict):
    """Where the memory is, and which models wait for some."""

    host: HostLedger
    gpus: list[GpuLedger]
    workers: list[WorkerMemory]
    queue: Sequence[str]
