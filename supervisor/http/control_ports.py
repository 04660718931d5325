"""What the control API asks of the fleet, of the logs and of the daemon around them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from ..domain import Memory, Options, Receipt
    from ..fleet.events import Events
    from ..fleet.views import (
        Books,
        ClientView,
        FormView,
        Loaded,
        ModelView,
        Plan,
        PreparedView,
        Released,
        Scaled,
        Swapped,
        WorkerView,
    )


class Forms(Protocol):
    """The prepared forms in the cache. Called on the event loop, and raises SupervisorError."""

    async def forms(self) -> list[FormView]:
        """Return all, the one used last first."""
        ...

    async def remove(self, name: str) -> FormView:
        """Remove one. Raises UnknownForm."""
        ...


class ControlledFleet(Protocol):
    """The fleet. Everything here is called on the event loop and raises SupervisorError."""

    @property
    def events(self) -> Events:
        """What happened lately."""
        ...

    @property
    def preparations(self) -> Forms:
        """The prepared forms in the cache."""
        ...

    def put_model(
        self, name: str, source: str | None, runtime: str | None, options: Options | None
    ) -> tuple[ModelView, bool]:
        """Add or change a model of the catalogue; True: it is new."""
        ...

    def remove_model(self, name: str) -> None:
        """Take an unloaded model out of the catalogue."""
        ...

    def models(self) -> list[ModelView]:
        """Return the catalogue."""
        ...

    def model(self, name: str) -> ModelView:
        """Return one model. Raises UnknownModel."""
        ...

    async def plan(self, name: str) -> Plan:
        """Return what a load would do now, without doing it."""
        ...

    def workers(self) -> list[WorkerView]:
        """Return all workers."""
        ...

    def worker(self, uid: str) -> WorkerView:
        """Return one worker. Raises UnknownWorker."""
        ...

    def books(self) -> Books:
        """Return what is budgeted and charged, and which models wait."""
        ...

    def clients(self) -> list[ClientView]:
        """Return all clients."""
        ...

    def client(self, client: str) -> ClientView:
        """Return one client. Raises UnknownClient."""
        ...

    async def load(
        self,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        wait: float = 600,
    ) -> Loaded | None:
        """Load a model; None when it is not ready after `wait` seconds (the load goes on)."""
        ...

    async def prepare(
        self,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        wait: float = 600,
    ) -> PreparedView | None:
        """Make a model's prepared form; None when it is not there after `wait` seconds."""
        ...

    async def scale(self, name: str, replicas: int, wait: float = 600) -> Scaled | None:
        """Change how many workers a model has; None when that takes longer than `wait` seconds."""
        ...

    async def unload(
        self,
        name: str,
        force: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - for the drain, not for this call
    ) -> list[Receipt]:
        """Unload a model: one receipt for each of its workers."""
        ...

    async def swap(
        self,
        client: str,
        name: str,
        source: str | None = None,
        runtime: str | None = None,
        options: Options | None = None,
        private: bool = False,
        ttl: float | None = None,
        wait: float = 600,
    ) -> Swapped:
        """Make a model the client's current one."""
        ...

    async def release(self, client: str) -> Released:
        """End a client's lease."""
        ...


@dataclass(frozen=True, slots=True)
class Forkserver:
    """One forkserver as the status shows it."""

    runtime: str
    pid: int | None
    state: str


@dataclass(frozen=True, slots=True)
class HostMemory:
    """Memory of the machine, and what the supervisor may use of it, in bytes."""

    total: int
    available: int
    limit: int


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that uses a GPU. The pid is as the driver sees it."""

    pid: int
    memory: int | None  # bytes


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU at one moment. Sizes in bytes; `reason` says why something is None."""

    uuid: str
    name: str
    index: int  # N of "gpu:N"
    total: int
    used: int | None
    free: int | None
    processes: tuple[GpuProcess, ...] | None
    reason: str | None


class LogLine(Protocol):
    """One line that a worker printed."""

    @property
    def text(self) -> str:
        """The line without its end."""
        ...


class LogFeed(Protocol):
    """Lines as they are printed."""

    def __aiter__(self) -> AsyncIterator[LogLine]:
        """Yield each line; may end."""
        ...

    def close(self) -> None:
        """End the subscription."""
        ...


class LogBook(Protocol):
    """What the workers of a model printed. Called on the event loop."""

    def tail(self, model: str, count: int) -> Sequence[LogLine]:
        """Return the last lines, oldest first."""
        ...

    def subscribe(self, model: str) -> LogFeed:
        """Return the lines that come from this call on."""
        ...


class Facts(Protocol):
    """What is not the fleet's. The first block never changes."""

    version: str
    pid: int
    url: str
    grpc: str | None  # HOST:PORT where gRPC is served
    state_dir: str
    started_at: float  # UNIX seconds

    def stopping(self) -> bool:
        """Say whether the supervisor shuts down. Called on the event loop."""
        ...

    def forkservers(self) -> Sequence[Forkserver]:
        """Return the forkservers. Called on the event loop."""
        ...

    async def gpus(self) -> Sequence[Gpu]:
        """Read the GPUs, within a bounded time. Called on the event loop."""
        ...

    def request_stop(self) -> None:
        """Begin the shutdown and return at once. Called on the event loop."""
        ...

    def process_memory(self, pid: int) -> Memory | None:
        """Measure a process; None when it is gone. Called in a thread: it may take a while."""
        ...

    def host_memory(self) -> HostMemory:
        """Measure the machine. Called in a thread."""
        ...
