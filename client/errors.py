"""What can go wrong with a supervisor: one class for each thing a caller would do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


ERROR_HEADER: Final = "X-Modelsup-Error"  # the code, where the body has no room for it


class ModelsupError(Exception):
    """A request that did not succeed. `str(error)` is a sentence for people.

    `code` is the supervisor's word for it ("held", "does_not_fit", ...), or this library's own:
    "unreachable", "bad_answer". `status` is the HTTP status, None where there was no answer.
    `retry_after` is in seconds. `cause` and `log` (the last lines of the worker's log) come with a
    model that failed; `clients` are the ids of those who hold the model. `plan` comes with a model
    that does not fit: what a load would have done, in the form of the HTTP answer.
    """

    def __init__(
        self,
        detail: str,
        *,
        code: str,
        status: int | None = None,
        model: str | None = None,
        client: str | None = None,
        worker: str | None = None,
        retry_after: float | None = None,
        cause: str | None = None,
        log: tuple[str, ...] = (),
        clients: tuple[str, ...] = (),
        plan: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.model = model
        self.client = client
        self.worker = worker
        self.retry_after = retry_after
        self.cause = cause
        self.log = log
        self.clients = clients
        self.plan = plan


class Unreachable(ModelsupError):
    """No supervisor answers at the URL."""


class TimedOut(ModelsupError):
    """It took longer than the caller, or the supervisor, was ready to wait."""


class InvalidRequest(ModelsupError):
    """The request names or holds something that cannot be used."""


class NotFound(ModelsupError):
    """There is nothing of that name."""


class UnknownModel(NotFound):
    """No such model in the catalogue."""


class UnknownClient(NotFound):
    """No such client: it never swapped to a model, released it, or its lease ran out."""


class UnknownWorker(NotFound):
    """No such worker: it never was, or is gone."""


class Conflict(ModelsupError):
    """The request is good, but not in the state that the model is in."""


class Held(Conflict):
    """The model is held by the leases of `clients`."""


class NotLoaded(Conflict):
    """The model is known but has no worker."""


class Unavailable(ModelsupError):
    """Not now: loading, restarting or stopping. Worth another try after `retry_after`."""


class Busy(Unavailable):
    """The queue of the model is full."""


class DoesNotFit(ModelsupError):
    """The memory budget has no room for the model and nothing may be evicted."""


class LoadFailed(ModelsupError):
    """The model cannot be loaded: `cause` and `log` say why."""


class NotPreparable(ModelsupError):
    """The model has no prepared form; the message says why."""


class PrepareFailed(ModelsupError):
    """The model was not prepared, though it may be; the message says what happened."""


_OF_CODE: Final[dict[str, type[ModelsupError]]] = {
    "unknown_model": UnknownModel,
    "unknown_client": UnknownClient,
    "unknown_worker": UnknownWorker,
    "held": Held,
    "not_loaded": NotLoaded,
    "load_failed": LoadFailed,
    "not_preparable": NotPreparable,
    "prepare_failed": PrepareFailed,
}
# For codes that say no more than the status, codes younger than this library, and what a worker
# answers, which is one sentence.
_OF_STATUS: Final[dict[int, tuple[type[ModelsupError], str]]] = {
    400: (InvalidRequest, "bad_request"),
    404: (NotFound, "not_found"),
    408: (TimedOut, "timeout"),
    409: (Conflict, "conflict"),
    413: (InvalidRequest, "too_large"),
    415: (InvalidRequest, "unsupported_media_type"),
    422: (InvalidRequest, "invalid"),
    429: (Busy, "busy"),
    503: (Unavailable, "unavailable"),
    504: (TimedOut, "timeout"),
    507: (DoesNotFit, "does_not_fit"),
}


def error_from(status: int, headers: Mapping[str, str], body: bytes, request: str) -> ModelsupError:
    """Return the error that an answer of status 400 or more stands for.

    `request` is its method and URL; they go into the message when the answer explains nothing.
    """
    problem = _problem(body)
    if problem is None:
        return ModelsupError(
            f"{request} was answered with status {status} and no explanation; "
            "is a modelsup supervisor listening there?",
            code="bad_answer",
            status=status,
        )
    by_status, code = _OF_STATUS.get(status, (ModelsupError, "internal"))
    code = problem.get("code") or headers.get(ERROR_HEADER) or code
    return _OF_CODE.get(code, by_status)(
        str(problem.get("detail") or problem.get("error") or problem.get("title")),
        code=code,
        status=status,
        model=problem.get("model"),
        client=problem.get("client"),
        worker=problem.get("worker"),
        retry_after=_seconds(problem.get("retry_after", headers.get("Retry-After"))),
        cause=problem.get("cause"),
        log=tuple(problem.get("log") or ()),
        clients=tuple(problem.get("clients") or ()),
        plan=problem.get("plan"),
    )


def _problem(body: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(body)
    except ValueError:
        return None
    explains = isinstance(data, dict) and not data.keys().isdisjoint({"detail", "error", "title"})
    return data if explains else None


def _seconds(value: object) -> float | None:
    """Return a Retry-After as seconds; its other form, a date, is never sent by a supervisor."""
    try:
        return float(str(value))
    except ValueError:
        return None
