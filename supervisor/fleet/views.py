"""What the fleet shows of itself: frozen snapshots whose `asdict` is the HTTP contract's JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from modelsup.worker.contract import Signature

    from ..domain import DeviceKind, Failure, Options, Place, Receipt
    from ..policy.admission import Blocker, Victim


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker. Times are UNIX seconds."""

    id: str
    model: str
    version: str
    runtime: str
    pid: int | None
    state: str
    since: float
    device: str | None
    private_to: str | None
    clients: tuple[str, ...]
    pinned: bool
    in_flight: int
    requests: int
    last_used_at: float | None
    restarts: int
    gpu_memory_limit_bytes: int | None
    charges: Mapping[str, int]  # bytes by resource: the host, or a GPU's UUID
    estimated: bool  # the charges: nobody has measured the model yet
    memory_stages: dict[str, int]  # private bytes by stage of the load, once it is ready
    framework: str | None  # name and version, once it is ready
    seconds: dict[str, float]  # by stage of the load
    failure: Failure | None
    guard: str | None = None  # what holds it to its limit of host memory
    from_prepared: bool = False  # it was loaded from the model's prepared form
    replica: int = 1  # of the workers that serve the same, which one


PreparedState = Literal[
    "none", "waiting", "preparing", "ready", "refused", "failed", "off"
]  # "refused": the model has no such form; "off": none is made or used


@dataclass(frozen=True, slots=True)
class PreparedView:
    """What is known of a model's prepared form; `form` is its name in the cache."""

    state: PreparedState
    reason: str = ""  # of a refusal or failure
    form: str | None = None
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class FormView:
    """A prepared form in the cache. `refused` says why there is none of a model."""

    name: str
    model: str  # its name when the form was made
    source: str | None
    framework: str  # name and version of what made it
    device: DeviceKind
    bytes: int
    used_at: float  # UNIX seconds
    refused: str


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model of the catalogue."""

    name: str
    source: str | None
    runtime: str
    version: str | None  # of the shared worker, where there is one
    versions: tuple[str, ...]
    state: str
    workers: tuple[str, ...]
    clients: tuple[str, ...]
    pinned: bool
    options: Options
    failure: Failure | None
    signatures: tuple[Signature, ...] | None  # known once it has been loaded
    prepared: PreparedView = PreparedView("none")
    residency: Place = "disk"
    waiting: int = 0  # requests, for a load or for their turn
    replicas: int = 1  # workers that each loaded version is to have
    ready: int = 0  # shared workers of `version` that serve


@dataclass(frozen=True, slots=True)
class ClientView:
    """One client and its current model."""

    id: str
    model: str
    version: str
    worker: str | None
    private: bool
    since: float
    expires_in_seconds: float
    requests: int


@dataclass(frozen=True, slots=True)
class Books:
    """What may be charged, what is charged, and who waits. Bytes by resource."""

    budgets: dict[str, int]
    charged: dict[str, int]
    own: int  # of the host's memory, for the supervisor and its forkservers; not in the budget
    queue: tuple[str, ...]  # models that wait for room, first in line first
    kept: int = 0  # of the host's memory, for weights of models that are not loaded; gives way


@dataclass(frozen=True, slots=True)
class Plan:
    """What a load would do now. `fits`: "now", "after eviction", "after waiting" or "no".

    `charges` are bytes by resource; `estimated` says that nobody has measured the model yet.
    `seconds` are those of its last load, where there was one.
    """

    model: str
    fits: str
    device: str | None
    charges: dict[str, int]
    estimated: bool
    victims: tuple[Victim, ...]
    blockers: tuple[Blocker, ...]
    reason: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to a load that is ready."""

    model: str
    version: str
    worker: str
    already_loaded: bool
    seconds: dict[str, float]  # "queue", "fork", "load", "warm", "total"
    host_bytes: int  # of all its workers
    warnings: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaled:
    """The answer to a change of the number of workers."""

    model: str
    replicas: int  # that it is to have
    workers: tuple[str, ...]  # that serve
    receipts: tuple[Receipt, ...]  # of those that were too many
    seconds: float


@dataclass(frozen=True, slots=True)
class Swapped:
    """The answer to a swap. `receipt` is None when the previous model stays: `kept` says why."""

    client: str
    model: str
    version: str
    worker: str
    previous: str | None
    receipt: Receipt | None
    kept: str | None
    seconds: dict[str, float] = field(default_factory=dict)  # "load", "total"


@dataclass(frozen=True, slots=True)
class Released:
    """The answer to a release."""

    client: str
    model: str
    receipt: Receipt | None
    kept: str | None
