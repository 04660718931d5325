"""The outside as the fleet needs it; `daemon` plugs the adapters in.

A worker may live on another machine: nothing here speaks of descriptors or pids of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from modelsup.worker.contract import LaunchSpec, StatusMessage

    from ..domain import (
        CatalogueEntry,
        Device,
        Exit,
        Footprint,
        FootprintKey,
        GpuContext,
        Lease,
        Memory,
        PreparedForm,
        PreparedKey,
        SlotKey,
    )

    Headers = Sequence[tuple[bytes, bytes]]


class UpstreamResponse(Protocol):
    """A worker's answer whose head has arrived."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Headers with lower-case names, the hop-by-hop ones left out."""
        ...

    @property
    def whole(self) -> bytes | None:
        """The body, if all of it arrived with the head; then `chunks` need not be read."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives. Raises WorkerDied when it ends early."""
        ...

    def close(self) -> None:
        """Give up the rest of the answer; the connection is not used again."""
        ...


class Upstream(Protocol):
    """Keep-alive HTTP connections to one worker."""

    async def exchange(
        self,
        method: bytes,
        path: bytes,
        headers: Headers,
        body: bytes,
        more: AsyncIterator[bytes] | None,
    ) -> UpstreamResponse:
        """Send one request and return once the head of its answer is here.

        `body` is all of it when `more` is None, else its beginning. Hop-by-hop headers and the
        secret are this side's business. Raises WorkerDied when the worker is not reachable or
        ends the connection first, NotSent if it surely has seen nothing of the request.
        """
        ...

    @property
    def refused(self) -> bool:
        """Whether nobody listened at the last try to connect."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class Handle(Protocol):
    """One launched worker process."""

    @property
    def pid(self) -> int:
        """The process id, on the machine where it runs."""
        ...

    @property
    def upstream(self) -> Upstream:
        """The way to it."""
        ...

    @property
    def guard(self) -> str | None:
        """What holds it to its limit of host memory, such as "cgroup v2"; None: nothing does."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended; `exited` may tell of it a little later."""
        ...

    async def exited(self) -> Exit:
        """Wait for the end of the process. May be awaited by many, and again after the end."""
        ...

    def go_on(self) -> None:
        """Let a worker go on that stands still so that its GPU context can be measured."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to the worker's process group."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to the worker's process group, and to all that is in its cgroup."""
        ...

    def memory(self) -> Memory | None:
        """Measure the worker's own host memory now; None when it is gone."""
        ...

    def dispose(self) -> None:
        """After the end: remove its temporary folder, its orphans and its descriptors."""
        ...


class Launcher(Protocol):
    """Starts workers."""

    async def spawn(self, spec: LaunchSpec, on_status: Callable[[StatusMessage], None]) -> Handle:
        """Start a worker and return once its process exists. Raises LaunchFailed.

        `on_status` is called on the event loop with each message of that worker.
        """
        ...


class Logs(Protocol):
    """What workers print."""

    def last_lines(self, worker: str, count: int) -> tuple[str, ...]:
        """Return the last lines of one worker."""
        ...


class Sources(Protocol):
    """Where models come from."""

    def identify(self, source: str) -> tuple[str, str]:
        """Return (absolute path, runtime) of a source. Raises BadSource."""
        ...

    def versions(self, entry: CatalogueEntry) -> tuple[str, ...]:
        """Return the versions there are, lowest first; empty when the source is unusable."""
        ...

    def discover(self) -> dict[str, str]:
        """Return name → path of what lies in the models folder, if there is one."""
        ...

    def resolve(self, entry: CatalogueEntry, version: str | None) -> tuple[str, str | None]:
        """Return (version, absolute path) of what is to be loaded. Raises BadSource."""
        ...

    def measure(self, path: str | None) -> tuple[int, str]:
        """Return (size in bytes, digest) of what is in the files of a model. Raises BadSource.

        May read them to the end.
        """
        ...

    def fingerprint(self, entry: CatalogueEntry) -> object:
        """Return a value that changes when the files of the model do."""
        ...


class FormCache(Protocol):
    """Where prepared forms are kept. All but two calls are made in threads: they may take long."""

    def begin(self) -> Path:
        """Return an empty folder to make a form in. Raises CacheFailed."""
        ...

    def finish(self, folder: Path, key: PreparedKey) -> PreparedForm:
        """Keep a form that was made. Raises CacheFailed, FormDamaged."""
        ...

    def discard(self, folder: Path) -> None:
        """Remove what was begun, if it was not finished."""
        ...

    def find(self, key: PreparedKey, framework: str | None) -> PreparedForm | None:
        """Return the form of a model, checked. None: any framework's.

        Raises CacheFailed, or FormDamaged once it has removed one.
        """
        ...

    def is_intact(self, form: PreparedForm) -> bool:
        """Return whether no file of the form has changed since it was returned. Is quick."""
        ...

    def touch(self, form: PreparedForm) -> None:
        """Note that a form is used now. Is quick."""
        ...

    def all(self) -> list[PreparedForm]:
        """Return all forms, the one used last first. Raises CacheFailed."""
        ...

    def remove(self, name: str) -> PreparedForm:
        """Remove a form. Raises UnknownForm, CacheFailed."""
        ...


class Store(Protocol):
    """What survives a restart."""

    def put_model(self, entry: CatalogueEntry) -> None:
        """Add or replace a model of the catalogue."""
        ...

    def delete_model(self, name: str) -> None:
        """Remove a model of the catalogue."""
        ...

    def add_wanted(self, key: SlotKey) -> None:
        """Note that this is to be loaded again after a restart."""
        ...

    def remove_wanted(self, key: SlotKey) -> None:
        """Forget that."""
        ...

    def put_lease(self, lease: Lease) -> None:
        """Add or replace a client's lease."""
        ...

    def delete_lease(self, client: str) -> None:
        """Remove a client's lease."""
        ...

    def footprint(self, key: FootprintKey) -> Footprint | None:
        """Return what was measured of a model before."""
        ...

    def put_footprint(self, key: FootprintKey, footprint: Footprint) -> None:
        """Keep what was measured of a model."""
        ...

    def put_context(self, context: GpuContext) -> None:
        """Keep what a process of a runtime takes of a GPU before it loads a model."""
        ...

    def contexts(self) -> Sequence[GpuContext]:
        """Return all that was kept of these."""
        ...

    def add_worker(self, uid: str, model: str, pid: int) -> None:
        """Note a running worker, so that a later supervisor can look for it."""
        ...

    def remove_worker(self, uid: str) -> None:
        """Forget it."""
        ...


class Devices(Protocol):
    """The GPUs of this machine."""

    def all(self) -> Sequence[Device]:
        """Return the GPUs that work."""
        ...

    def choose(self, wanted: str | None) -> Device | None:
        """Return the GPU for "gpu:N" or for no wish at all, None for the CPU.

        Raises BadDevice when there is no such GPU.
        """
        ...

    async def hold(self, uuid: str, pid: int, at_launch: Any = None) -> Hold:
        """Return what a live worker holds of a GPU, to compare with after its end.

        `at_launch` is what was returned, for no pid yet, when the worker was about to be launched.
        """
        ...

    async def reclaimed(self, hold: Any, expected: int | None = None) -> Reclaimed:
        """Wait, for a bounded time, until an ended worker's memory is back; may be asked again.

        `hold` is what `hold` gave; `expected` are the bytes it is thought to have been.
        """
        ...


class Hold(Protocol):
    """What a worker holds of a GPU."""

    @property
    def bytes(self) -> int | None:
        """The bytes; None where the driver does not tell."""
        ...

    @property
    def grown(self) -> int | None:
        """The bytes by which the GPU's use has grown since the launch; None if not known."""
        ...


class Reclaimed(Protocol):
    """What became of an ended worker's GPU memory."""

    @property
    def verdict(self) -> Literal["back", "held", "unknown"]:
        """Whether it is free again."""
        ...

    @property
    def freed(self) -> int:
        """The bytes that came back."""
        ...

    @property
    def reason(self) -> str:
        """Why it is not known to be back."""
        ...


class Parking(Protocol):
    """What moves a process's GPU memory to the host's, and back in place."""

    @property
    def reason(self) -> str | None:
        """Why it cannot be done; None: it can."""
        ...

    async def park(self, pid: int) -> None:
        """Move it to the host; the process stands still when it turns to its GPU. Raises
        ParkingFailed: then it is as it was.
        """
        ...

    async def resume(self, pid: int) -> None:
        """Move it back. Raises ParkingFailed: then the process is of no use any more."""
        ...


class Pages(Protocol):
    """The kernel's page cache. One caller at a time; calls take as long as the disk needs."""

    def hold(self, folder: str) -> bool:
        """Read a folder's files in and keep them; return whether all are locked. Raises OSError."""
        ...

    def release(self, folder: str) -> None:
        """Let the kernel take the memory of a folder's files when it needs it."""
        ...

    def drop(self, folder: str) -> None:
        """Give the memory of a folder's files back now, unless somebody maps them."""
        ...


class Host(Protocol):
    """The memory of the machine that the supervisor runs on."""

    def memory_limit(self) -> int:
        """Return the bytes that supervisor and workers may use in all."""
        ...

    def own_memory(self) -> int:
        """Return the bytes that the supervisor and its forkservers take themselves."""
        ...


class Clock(Protocol):
    """Time, injected."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def wall(self) -> float:
        """Return UNIX seconds."""
        ...
