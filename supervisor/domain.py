"""The words of the supervisor as frozen data: models, failures, receipts, leases."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # of a model or a client
GPU_NOISE: Final = 64 * 1024**2  # bytes; less than any process that has opened a GPU takes of it

Outcome = Literal["drained", "forced", "crashed"]
DeviceKind = Literal["cpu", "gpu"]
Place = Literal["gpu", "ram", "disk"]  # where a model is: in a worker, the page cache, its files
Prepare = Literal["auto", "now", "off"]  # after the first load, once the model is known, or never


@dataclass(frozen=True, slots=True)
class Options:
    """How a model is to be loaded. None: not said, so what was said before, or the default."""

    gpu_memory_fraction: float | None = None
    gpu_memory: int | None = None  # bytes
    ram: int | None = None  # bytes
    device: str | None = None  # "cpu", "gpu:N"
    pin: bool | None = None
    ttl: float | None = None  # seconds idle before unload; None: the default
    threads: int | None = None
    priority: int | None = None  # in the queue for memory; higher goes first
    max_requests: int | None = None  # then the worker is replaced; 0: never
    recycle_above: int | None = None  # bytes of private host memory, in the same way
    warm_up_batch: int | None = None  # rows of the largest call before it is ready
    max_batch_size: int | None = None  # rows that its worker puts into one call
    max_delay: float | None = None  # seconds that a request waits for others to share its call
    preferred_batch_sizes: list[int] | None = None  # rows; empty: what pays
    max_concurrency: int | None = None  # requests at its worker at once; 0: any number
    max_queue: int | None = None  # requests that wait for it
    replicas: int | None = None  # workers of each version that is loaded
    retry: bool | None = None  # a request whose worker died goes to another one, once
    prepare: Prepare | None = None
    keep: Place | None = None  # where it stays between requests; None: by use
    labels: dict[str, str] | None = None  # version by label
    image: dict[str, Any] | None = None  # how an image becomes the model's input
    classes: str | None = None  # absolute path of a file with the names of the classes


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model that the supervisor knows."""

    name: str
    source: str | None  # absolute path
    runtime: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class SlotKey:
    """What a worker stands for: one version of a model, shared or private to a client."""

    model: str
    version: str
    client: str = ""  # "": shared
    replica: int = 0  # of the workers that serve the same, which one

    @property
    def crew(self) -> SlotKey:
        """The key that all workers share that serve the same."""
        return SlotKey(self.model, self.version, self.client) if self.replica else self


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a worker ended. `cause` is one of the words of the design, or "signal:<n>"."""

    cause: str
    message: str
    log: tuple[str, ...] = ()
    at: float = 0.0  # UNIX seconds


@dataclass(frozen=True, slots=True)
class Overuse:
    """A worker was killed for want of memory: its limit, and what it used, both in bytes."""

    limit: int
    used: int  # 0: not known
    shared: bool = False  # the limit of all that runs here, not the worker's own


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: exactly one of `code` and `signal` is set, or neither if unknown."""

    code: int | None = None
    signal: int | None = None
    overuse: Overuse | None = None  # of host memory, where that was its end
    max_rss: int = 0  # bytes
    cpu_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU: what CUDA_VISIBLE_DEVICES takes, and its memory in bytes."""

    uuid: str
    total_memory: int
    reserved: int = 0  # by the driver


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a model was measured to take, in bytes, and how long its load took.

    `stages` has the worker's private host memory by stage: at the fork, after the load, after the
    first call, steady, peak. `gpu` is None where it ran on the CPU or the driver does not tell;
    `gpu_context` is the part of it that any process would have taken.
    """

    stages: dict[str, int]
    gpu: int | None
    seconds: float
    framework: str  # name and version, such as "tensorflow 2.21.0"
    gpu_context: int = 0

    @property
    def under_cap(self) -> int | None:
        """What the model itself took of the GPU, which its cap bounds; None if nobody knows."""
        return None if self.gpu is None else max(0, self.gpu - self.gpu_context)

    @property
    def host(self) -> int:
        """The most of the host's memory that it had to itself."""
        return max(self.stages.values(), default=0)


@dataclass(frozen=True, slots=True)
class GpuContext:
    """What a process of a runtime was measured to take of a GPU before it loads a model."""

    runtime: str
    device: str  # UUID
    framework: str  # name and version
    bytes: int


@dataclass(frozen=True, slots=True)
class PreparedKey:
    """What a prepared form is of: the files of a model, its runtime, and the kind of device."""

    digest: str
    runtime: str
    device: DeviceKind


@dataclass(frozen=True, slots=True)
class PreparedForm:
    """A prepared form in the cache. `refused` says why the model has none; then it has no files."""

    name: str  # in the cache
    folder: str  # absolute path
    framework: str  # name and version of what made it, such as "tensorflow 2.21.0"
    device: DeviceKind
    model: str  # its name when it was made, for people; as the source
    source: str | None
    bytes: int
    used_at: float  # UNIX seconds
    refused: str
    state: tuple[str, ...]  # of its files: another after any change


@dataclass(frozen=True, slots=True)
class FootprintKey:
    """What a footprint holds for: a model's files, its runtime, the kind of device, its form."""

    digest: str
    runtime: str
    device: DeviceKind
    prepared: bool = False


@dataclass(frozen=True, slots=True)
class Memory:
    """Host memory of a process in bytes."""

    pss: int
    uss: int
    rss: int
    locked: int = 0  # of the pss


class Freed(TypedDict):
    """Bytes that came back; those of GPUs by UUID."""

    host_bytes: int
    gpu_bytes: dict[str, int]


class ReceiptSeconds(TypedDict):
    """How long the steps of an end took."""

    drain: float
    exit: float
    memory_back: float
    total: float


class ReceiptShape(TypedDict):
    """A receipt as JSON."""

    model: str
    worker: str
    outcome: Outcome
    in_flight_completed: int
    in_flight_aborted: int
    freed: Freed
    verified: bool
    reason: str | None
    seconds: ReceiptSeconds


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to an unload: what was freed, how fast, how it ended."""

    model: str
    worker: str
    outcome: Outcome
    in_flight_completed: int = 0
    in_flight_aborted: int = 0
    freed_host: int = 0  # bytes
    freed_gpu: dict[str, int] = field(default_factory=dict)  # bytes by GPU UUID
    verified: bool = True
    drain: float = 0.0  # seconds, as the next three
    exit: float = 0.0
    memory_back: float = 0.0
    total: float = 0.0
    reason: str | None = None  # why it is not verified

    @classmethod
    def together(cls, receipts: Sequence[Receipt]) -> Receipt:
        """Return one receipt for workers that stopped side by side; there is at least one.

        Counts and bytes are sums, seconds the longest, and the outcome is the worst.
        """
        severity: tuple[Outcome, ...] = ("drained", "forced", "crashed")
        gpus = sorted({uuid for one in receipts for uuid in one.freed_gpu})
        return cls(
            model=receipts[0].model,
            worker=receipts[0].worker,
            outcome=max((one.outcome for one in receipts), key=severity.index),
            in_flight_completed=sum(one.in_flight_completed for one in receipts),
            in_flight_aborted=sum(one.in_flight_aborted for one in receipts),
            freed_host=sum(one.freed_host for one in receipts),
            freed_gpu={u: sum(one.freed_gpu.get(u, 0) for one in receipts) for u in gpus},
            verified=all(one.verified for one in receipts),
            drain=max(one.drain for one in receipts),
            exit=max(one.exit for one in receipts),
            memory_back=max(one.memory_back for one in receipts),
            total=max(one.total for one in receipts),
            reason="; ".join(one.reason for one in receipts if one.reason) or None,
        )

    def to_json(self) -> ReceiptShape:
        """Return the receipt in the form of the HTTP contract."""
        return {
            "model": self.model,
            "worker": self.worker,
            "outcome": self.outcome,
            "in_flight_completed": self.in_flight_completed,
            "in_flight_aborted": self.in_flight_aborted,
            "freed": {"host_bytes": self.freed_host, "gpu_bytes": self.freed_gpu},
            "verified": self.verified,
            "reason": self.reason,
            "seconds": {
                "drain": self.drain,
                "exit": self.exit,
                "memory_back": self.memory_back,
                "total": self.total,
            },
        }


@dataclass(frozen=True, slots=True)
class Lease:
    """A client's hold on its current model."""

    client: str
    key: SlotKey
    since: float  # UNIX seconds
    ttl: float  # seconds without use before it ends
