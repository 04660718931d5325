"""The fleet as the gateway needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelsup.worker.contract import Signature

    from ..domain import Failure
    from ..fleet.ports import Upstream
    from ..fleet.views import Loaded, ModelView


class Worker(Protocol):
    """A ready worker that a request can be sent to."""

    @property
    def uid(self) -> str:
        """Its id."""
        ...

    @property
    def upstream(self) -> Upstream:
        """The connections to it."""
        ...

    @property
    def signatures(self) -> tuple[Signature, ...]:
        """What the model it serves can be called with."""
        ...

    def end(self, completed: bool) -> None:
        """End a request that has begun; `completed`: the worker's whole answer was passed on."""
        ...

    async def until_explained(self) -> Failure | None:
        """Return why it failed, after a moment's wait at most; None if it did not fail."""
        ...


class Router(Protocol):
    """Finds the worker for a request. Everything runs on the event loop."""

    def ready(self, model: str, version: str | None) -> Worker | None:
        """Return a ready shared worker; without a version, of the default one."""
        ...

    def serving(self, model: str, version: str | None) -> Sequence[Worker]:
        """Return all ready shared workers; without a version, of the default one."""
        ...

    async def ensure_ready(self, model: str, version: str | None = None) -> Worker:
        """Load the model if need be. Cancelling it withdraws the wish."""
        ...

    async def ensure_ready_for_client(self, client: str) -> Worker:
        """Load the client's current model if need be."""
        ...

    def take(self, model: str, version: str | None) -> Worker | None:
        """Return a worker at which a request has begun; None: it has to wait for its turn."""
        ...

    async def turn(self, model: str, version: str | None) -> Worker:
        """Wait for the turn of a request, and for a load; return the worker where it has begun."""
        ...

    def take_for_client(self, client: str) -> Worker | None:
        """Take a worker of a client's current model, and renew the lease."""
        ...

    async def turn_for_client(self, client: str) -> Worker:
        """Wait for the turn of a request for a client's current model."""
        ...

    def waiting(self, model: str, version: str | None) -> int:
        """Return how many requests wait for room at the ready workers of a model."""
        ...

    def labelled(self, model: str, label: str) -> str:
        """Return the version that a label of a model stands for. Raises UnknownModel."""
        ...

    def retries(self, worker: Any) -> bool:
        """Return whether a request whose worker has died may be sent to another one."""
        ...

    def report_hung(self, worker: Any) -> None:
        """Say that a request got no answer in the time that any may take."""
        ...

    def report_overdue(self, worker: Any) -> None:
        """Say that a request got no answer in the time that its client had."""
        ...

    def keep_alive(self, worker: Any, seconds: float) -> None:
        """Set how long a worker stays after its last request; always, if negative."""
        ...

    def models(self) -> Sequence[ModelView]:
        """Return all models of the catalogue."""
        ...

    def model(self, name: str) -> ModelView:
        """Return one model. Raises UnknownModel."""
        ...

    async def load(self, name: str) -> Loaded | None:
        """Load a model; None when that takes longer than one may wait."""
        ...

    async def unload(self, name: str) -> object:
        """Unload a model. Raises NotLoaded or Held."""
        ...
