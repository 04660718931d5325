"""What can go wrong, as data: each error says what, which, and what to do next.

HTTP numbers are not here; `http/problem.py` holds them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .domain import Failure


class SupervisorError(Exception):
    """Base of all errors that are told to a client. `code` names the kind."""

    code: ClassVar[str] = "internal"
    retry_after: float | None = None  # seconds

    def __init__(
        self, message: str, *, model: str | None = None, client: str | None = None
    ) -> None:
        super().__init__(message)
        self.model = model
        self.client = client


class UnknownModel(SupervisorError):
    """The catalogue has no such model, or the model no such version."""

    code = "unknown_model"


class UnknownClient(SupervisorError):
    """No client holds a lease under this name."""

    code = "unknown_client"


class UnknownWorker(SupervisorError):
    """No worker with this id."""

    code = "unknown_worker"


class Invalid(SupervisorError):
    """A value that cannot be used; the message names it and what was expected."""

    code = "invalid"


class NotLoaded(SupervisorError):
    """The model is known but has no worker."""

    code = "not_loaded"


class SourceConflict(SupervisorError):
    """The name already stands for another source that is loaded."""

    code = "source_conflict"


class StillLoaded(SupervisorError):
    """Not possible while the model is loaded."""

    code = "conflict"


class Superseded(SupervisorError):
    """A later request of the same client took the place of this one."""

    code = "superseded"


class Held(SupervisorError):
    """Other clients hold the model. `clients` names them."""

    code = "held"

    def __init__(self, message: str, *, model: str, clients: Sequence[str]) -> None:
        super().__init__(message, model=model)
        self.clients = tuple(clients)


class QueueFull(SupervisorError):
    """As many requests of the model wait as may."""

    code = "queue_full"
    retry_after = 1.0


class Restarting(SupervisorError):
    """The model's worker died and a new one is on its way."""

    code = "restarting"
    retry_after = 1.0


class Stopping(SupervisorError):
    """The supervisor is shutting down."""

    code = "stopping"
    retry_after = 5.0


class WorkerDied(SupervisorError):
    """The worker ended, or closed the connection, before the whole answer was there."""

    code = "worker_died"
    retry_after = 1.0


class NotSent(WorkerDied):
    """The worker took no connection, so that it has seen nothing of the request."""


class ParkingFailed(SupervisorError):
    """What a process has of its GPU could not be moved to host memory, or back."""


class LoadFailed(SupervisorError):
    """A model that could not be loaded; `failure` has the cause and the last log lines."""

    code = "load_failed"

    def __init__(self, message: str, *, model: str, failure: Failure) -> None:
        super().__init__(message, model=model)
        self.failure = failure


class NotPreparable(SupervisorError):
    """A model that has no prepared form; the message says why."""

    code = "not_preparable"


class PrepareFailed(SupervisorError):
    """The prepared form was not made, though there may be one; the message says why."""

    code = "prepare_failed"


class UnknownForm(SupervisorError):
    """The cache has no prepared form of this name."""

    code = "unknown_form"


class CacheFailed(SupervisorError):
    """The cache of prepared models could not be read or written; the message says why."""

    code = "cache_failed"


class TimedOut(SupervisorError):
    """Something did not happen within its time."""

    code = "timeout"


class DeadlineExceeded(SupervisorError):
    """A request was not answered within the time that its client gave it."""

    code = "deadline_exceeded"


class Hung(SupervisorError):
    """The worker gave no answer to anything for as long as a request may take."""

    code = "hung"


class DoesNotFit(SupervisorError):
    """There is no room for the model; `plan` says what is in the way, as the HTTP contract does."""

    code = "does_not_fit"

    def __init__(self, message: str, *, model: str, plan: dict[str, Any]) -> None:
        super().__init__(message, model=model)
        self.plan = plan


class TooLarge(SupervisorError):
    """A body over the limit."""

    code = "too_large"


class AdapterError(Exception):
    """What an adapter raises for the fleet to deal with; never told to a client as it is."""


class LaunchFailed(AdapterError):
    """A worker's process could not be started; the message says why.

    `cause` is that of the failure: "load_error" where another try would end the same.
    """

    cause: ClassVar[str] = "unknown"


class BadSource(AdapterError):
    """A source that cannot be a model; the message says why."""


class BadDevice(AdapterError):
    """A device that this machine does not have; the message names those it has."""


class FormDamaged(AdapterError):
    """A prepared form was not as it was made, and has been removed; the message says which."""


class StoreFailed(AdapterError):
    """What was to survive a restart could not be written; the message says why."""
