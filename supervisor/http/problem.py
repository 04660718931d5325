"""Errors as HTTP tells them: the one table of status numbers, and RFC 9457 problem bodies."""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any, Final, NotRequired, TypedDict

from ..errors import DoesNotFit, Held, LoadFailed, SupervisorError

PROBLEM_TYPE: Final = "application/problem+json"
STATUS: Final = {
    "bad_request": 400,
    "forbidden_origin": 403,
    "not_found": 404,
    "unknown_model": 404,
    "unknown_client": 404,
    "unknown_worker": 404,
    "unknown_form": 404,
    "method_not_allowed": 405,
    "held": 409,
    "source_conflict": 409,
    "not_loaded": 409,
    "superseded": 409,
    "conflict": 409,
    "too_large": 413,
    "unsupported_media_type": 415,
    "invalid": 422,
    "not_preparable": 422,
    "load_failed": 503,  # unless the model itself is at fault
    "busy": 429,
    "queue_full": 429,
    "internal": 500,
    "loading": 503,
    "restarting": 503,
    "stopping": 503,
    "worker_died": 503,
    "failed": 503,
    "prepare_failed": 503,
    "cache_failed": 503,
    "timeout": 504,
    "deadline_exceeded": 504,
    "hung": 504,
    "does_not_fit": 507,
}
UNLOADABLE: Final = frozenset({"bad_model", "load_error"})  # trying again cannot help
DEFAULT_RETRY_AFTER: Final = 5.0  # seconds, where a 429 or 503 knows no better
_INTERNAL: Final = "the supervisor failed at this request; its log has the traceback"


class Problem(TypedDict):
    """An error of the control API, as RFC 9457 has it. Programs look at `code`."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    model: NotRequired[str]
    client: NotRequired[str]
    retry_after: NotRequired[float]
    clients: NotRequired[list[str]]
    cause: NotRequired[str]
    log: NotRequired[list[str]]
    plan: NotRequired[dict[str, Any]]


class BadRequest(SupervisorError):
    """A request that cannot be read."""

    code = "bad_request"


class UnsupportedMediaType(SupervisorError):
    """A body that is not of the expected type."""

    code = "unsupported_media_type"


class ForbiddenOrigin(SupervisorError):
    """A change asked for by a web page of another site."""

    code = "forbidden_origin"


class NotFound(SupervisorError):
    """No such path."""

    code = "not_found"


class MethodNotAllowed(SupervisorError):
    """The path exists, but not with this method. `allow` lists those it has."""

    code = "method_not_allowed"

    def __init__(self, message: str, *, allow: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allow = allow


class Busy(SupervisorError):
    """As many calls of this kind wait as may wait at once."""

    code = "busy"
    retry_after = DEFAULT_RETRY_AFTER


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error; 500 for one that is not meant for clients."""
    if isinstance(error, LoadFailed) and error.failure.cause in UNLOADABLE:
        return HTTPStatus.UNPROCESSABLE_ENTITY
    return STATUS[_code_of(error)]


def statuses_of(kind: type[SupervisorError]) -> set[int]:
    """Return the statuses that errors of a kind have."""
    own = {STATUS[kind.code]}
    return own | {HTTPStatus.UNPROCESSABLE_ENTITY} if kind is LoadFailed else own


def retry_after_of(error: BaseException) -> float | None:
    """Return after how many seconds to try again: always set for a 429 or 503."""
    if isinstance(error, SupervisorError) and error.retry_after is not None:
        return error.retry_after
    waits = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
    return DEFAULT_RETRY_AFTER if status_of(error) in waits else None


def problem(error: BaseException) -> dict[str, Any]:
    """Return the RFC 9457 body of an error.

    An error that is not a SupervisorError becomes `internal`, and nothing of it is told.
    """
    status = status_of(error)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": str(error) if isinstance(error, SupervisorError) else _INTERNAL,
        "code": _code_of(error),
    }
    return body | _extensions(error)


def problem_headers(error: BaseException) -> dict[str, str]:
    """Return the headers of an error's answer."""
    headers = {"Content-Type": PROBLEM_TYPE}
    retry_after = retry_after_of(error)
    if retry_after is not None:
        headers["Retry-After"] = str(math.ceil(retry_after))
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = ", ".join(error.allow)
    return headers


def _code_of(error: BaseException) -> str:
    return error.code if isinstance(error, SupervisorError) else SupervisorError.code


def _extensions(error: BaseException) -> dict[str, Any]:
    found: dict[str, Any] = {"retry_after": retry_after_of(error)}
    if isinstance(error, SupervisorError):
        found |= {"model": error.model, "client": error.client}
    if isinstance(error, Held):
        found["clients"] = list(error.clients)
    if isinstance(error, DoesNotFit):
        found["plan"] = error.plan
    if isinstance(error, LoadFailed):
        found |= {"cause": error.failure.cause, "log": list(error.failure.log)}
    return {name: value for name, value in found.items() if value is not None}
