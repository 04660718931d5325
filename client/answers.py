"""What the supervisor answers when something was done: loaded, unloaded, swapped, released.

Annotations in this file are read at run time by `decode`. Sizes are bytes, times seconds.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Freed:
    """Memory that an unload gave back. `gpu_bytes` is keyed by the UUID of the GPU."""

    host_bytes: int
    gpu_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnloadSeconds:
    """Where the time of an unload went."""

    total: float
    drain: float = 0.0
    exit: float = 0.0
    memory_back: float = 0.0


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an unload did.

    `outcome` is "drained", "forced" or "crashed". `verified`: the process is gone and its memory
    was seen to be back; else `reason` says what is not known, or is not back. `workers` holds one
    receipt each where the model had several workers.
    """

    model: str
    worker: str
    outcome: str
    freed: Freed
    verified: bool
    seconds: UnloadSeconds
    in_flight_completed: int = 0
    in_flight_aborted: int = 0
    reason: str | None = None
    workers: tuple["Receipt", ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedMemory:
    """Memory of a model that was just loaded. `gpu_bytes` is keyed by the UUID of the GPU."""

    host_bytes: int
    gpu_bytes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a load did.

    `state` is "ready", or another one when the caller chose not to wait; `worker`, `version` and
    `memory` are then None. `workers` are all that serve it. `seconds` has
    "queue", "fork", "load", "warm" and "total".
    """

    model: str
    state: str
    version: str | None = None
    worker: str | None = None
    already_loaded: bool = False
    seconds: dict[str, float] = field(default_factory=dict)
    memory: LoadedMemory | None = None
    warnings: tuple[str, ...] = ()
    workers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scaled:
    """What a change of the number of a model's workers did.

    `workers` serve now: none where the model is not loaded. `receipt` is of those that ended.
    """

    model: str
    replicas: int
    workers: tuple[str, ...] = ()
    receipt: Receipt | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Swap:
    """What a swap did.

    `receipt` is that of the `previous` model, None where it stays loaded; `kept` then says why.
    """

    client: str
    model: str
    version: str
    worker: str
    previous: str | None = None
    receipt: Receipt | None = None
    kept: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Released:
    """What the end of a lease did: the `receipt` of its model, or why the model was `kept`."""

    client: str
    model: str
    receipt: Receipt | None = None
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class Stopping:
    """A supervisor that was told to stop. It ends its workers first."""

    state: str
    pid: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """The answer to a preparation; `form` is its name in the cache."""

    model: str
    state: str
    form: str | None = None
    bytes: int = 0
