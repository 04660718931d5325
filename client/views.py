"""What the supervisor shows: models, workers, clients, memory and itself.

Annotations in this file are read at run time by `decode`. Sizes are bytes, times of day UNIX
seconds, durations seconds.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a model failed, and the last lines of its worker's log."""

    cause: str
    message: str
    at: float | None = None
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A named input or output. `dtype` is numpy's name, or "string" for bytes.

    `shape` has None for a free dimension, and is None where the rank is unknown.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] | None = None


@dataclass(frozen=True, slots=True)
class SignatureInfo:
    """One callable of a model."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...] = ()
    batchable: bool = False
    method: str = "predict"


@dataclass(frozen=True, slots=True)
class PreparedInfo:
    """What is known of a model's prepared form.

    `state` is "none", "waiting", "preparing", "ready", "refused" where the model has no such form,
    "failed" or "off"; `form` is its name in the cache.
    """

    state: str = "none"
    reason: str = ""
    form: str | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """A prepared model in the cache. `refused` says why the model has no such form."""

    name: str
    model: str
    source: str | None
    framework: str
    device: str
    bytes: int
    used_at: float
    refused: str = ""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model of the catalogue. `signatures` is None until the model was loaded once."""

    name: str
    state: str
    source: str | None = None
    runtime: str | None = None
    version: str | None = None
    versions: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()
    clients: tuple[str, ...] = ()
    pinned: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None
    signatures: tuple[SignatureInfo, ...] | None = None
    prepared: PreparedInfo = PreparedInfo()
    residency: str = "disk"  # where its weights are: "gpu" (a worker), "ram" or "disk"
    waiting: int = 0  # requests
    replicas: int = 1  # workers that it is to have, once loaded
    ready: int = 0  # workers that serve


@dataclass(frozen=True, slots=True)
class Victim:
    """A worker that a load would end to make room, and why this one."""

    worker: str
    model: str
    reason: str


@dataclass(frozen=True, slots=True)
class Blocker:
    """A worker that is in the way of a load; `passing`: the reason goes away by itself."""

    worker: str
    model: str
    reason: str
    passing: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load would do now. `fits`: "now", "after eviction", "after waiting" or "no".

    `charges` are bytes by resource: "host", or the UUID of a GPU. `estimated`: the model has not
    been measured yet. `device` is the UUID of the GPU, None for the CPU. `reason` says why it does
    not fit, or that it is loaded already. `seconds` is how long its last load took.
    """

    model: str
    fits: str
    device: str | None = None
    charges: dict[str, int] = field(default_factory=dict)
    estimated: bool = False
    victims: tuple[Victim, ...] = ()
    blockers: tuple[Blocker, ...] = ()
    reason: str = ""
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Host memory of a worker: proportional share, private, resident."""

    pss_bytes: int
    uss_bytes: int
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """The process of one loaded model. `private_to` is the client that has it for itself.

    `charges` are the bytes that the budget counts for it, by resource: "host", or the UUID of a
    GPU; `estimated` until its model has been measured. `memory_stages` has its private bytes by
    stage of the load. `framework` is that of its runtime, with its version.
    """

    id: str
    model: str
    state: str
    version: str | None = None
    runtime: str | None = None
    pid: int | None = None
    since: float | None = None
    device: str | None = None
    private_to: str | None = None
    clients: tuple[str, ...] = ()
    pinned: bool = False
    in_flight: int = 0
    requests: int = 0
    last_used_at: float | None = None
    restarts: int = 0
    memory: WorkerMemory | None = None
    gpu_memory_limit_bytes: int | None = None
    charges: dict[str, int] = field(default_factory=dict)
    estimated: bool = False
    memory_stages: dict[str, int] = field(default_factory=dict)
    framework: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    failure: Failure | None = None
    guard: str | None = None
    from_prepared: bool = False
    replica: int = 1  # of the workers that serve the same, which one


@dataclass(frozen=True, slots=True)
class ClientInfo:
    """A lease: which client holds which model, and for how long if it does nothing."""

    id: str
    model: str
    version: str | None = None
    worker: str | None = None
    private: bool = False
    since: float | None = None
    expires_in_seconds: float | None = None
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. Ids rise, also over a restart of the supervisor.

    `kind` is "worker", "restart", "eviction", "idle", "lease", "queue" or "alarm". `facts` says
    whom it is about and why: "model", "worker", "client", "state", "reason", "cause", ...
    """

    id: int
    at: float
    kind: str
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventList:
    """The events that the supervisor still knows, and the id to follow on from."""

    events: tuple[Event, ...]
    last_id: int


@dataclass(frozen=True, slots=True)
class ModelCount:
    """How many models the catalogue has, and how many of them are loaded."""

    known: int
    loaded: int


@dataclass(frozen=True, slots=True)
class ForkserverInfo:
    """The process that workers of one runtime are forked from."""

    runtime: str
    state: str
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Status:
    """The supervisor itself."""

    version: str
    pid: int
    url: str
    state: str
    started_at: float
    uptime_seconds: float
    models: ModelCount
    workers: int
    clients: int
    state_dir: str | None = None
    forkservers: tuple[ForkserverInfo, ...] = ()
    grpc: str | None = None  # HOST:PORT where gRPC is served


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Host memory: the machine's, the supervisor's limit, and the share of each kind of process.

    The charges of the workers never pass the budget, which leaves out the reserve and what the
    supervisor takes itself, its own bytes.
    """

    total_bytes: int
    available_bytes: int
    limit_bytes: int | None = None
    budget_bytes: int | None = None
    charged_bytes: int | None = None
    own_bytes: int | None = None
    kept_bytes: int | None = None  # weights of models that are not loaded; gives way to loads
    supervisor_bytes: int | None = None
    forkservers_bytes: int | None = None
    workers_bytes: int | None = None
    tree_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerShare:
    """The memory of one worker, in the ledger."""

    id: str
    model: str
    pss_bytes: int | None = None
    uss_bytes: int | None = None
    rss_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a GPU; `worker` is its id if it is one."""

    pid: int
    memory_bytes: int | None = None
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: what is budgeted, charged, and really used. `reason` says why a figure is None."""

    uuid: str
    name: str
    index: int
    total_bytes: int
    budget_bytes: int | None = None
    charged_bytes: int = 0
    used_bytes: int | None = None
    free_bytes: int | None = None
    workers_bytes: int | None = None
    others_bytes: int | None = None
    processes: tuple[GpuProcess, ...] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Who uses how much. `queue` names the models that wait for room, first in line first."""

    host: HostMemory
    gpus: tuple[Gpu, ...] = ()
    workers: tuple[WorkerShare, ...] = ()
    queue: tuple[str, ...] = ()
