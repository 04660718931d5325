"""What a call takes and what it answers, as data: routes declare it, /openapi.json tells it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Generic, TypeVar

from ..errors import Invalid, SupervisorError
from .problem import PROBLEM_TYPE, Problem
from .request_bodies import Fields

T = TypeVar("T")

Reader = Callable[[Fields], object]
Raised = tuple[type[SupervisorError], ...]

JSON_TYPE: Final = "application/json"
TEXT_TYPE: Final = "text/plain"
EVENTS_TYPE: Final = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Created(Generic[T]):
    """An answer with status 201."""

    body: T
    status: ClassVar[int] = 201


@dataclass(frozen=True, slots=True)
class Accepted(Generic[T]):
    """An answer with status 202: it goes on."""

    body: T
    status: ClassVar[int] = 202


@dataclass(frozen=True, slots=True)
class Text:
    """An answer in plain text."""

    body: str


@dataclass(frozen=True, slots=True)
class Header:
    """A header of a request that has a meaning: what it is, and what it must look like."""

    name: str
    meaning: str
    rule: re.Pattern[str]

    def checked(self, value: str) -> str:
        """Return a value that it has. Raises Invalid."""
        if not self.rule.fullmatch(value):
            raise Invalid(f"the header {self.name} must be {self.meaning}")
        return value


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path.

    `answers` has the types of the bodies by status and media type. `query` and `reads` read the
    query and a JSON body; `bodies` are the types of bodies that others read, by media type.
    `raises` are the errors that it may end with, `refused` further statuses of errors, and
    `errors` the types of an error's body by media type.
    """

    method: str
    path: str  # its variables as "{name}"
    name: str
    summary: str
    tag: str
    answers: Mapping[int, Mapping[str, Any]]
    raises: Raised = ()
    refused: tuple[int, ...] = ()
    errors: Mapping[str, Any] = field(default_factory=lambda: {PROBLEM_TYPE: Problem})
    query: Reader | None = None
    reads: Reader | None = None
    bodies: Mapping[str, Any] = field(default_factory=dict)
    needs_body: bool = True  # where it has `bodies`
    headers: tuple[Header, ...] = ()


LAST_EVENT_ID: Final = Header(
    "Last-Event-ID", "the id of an event, a whole number", re.compile(r"([0-9]{1,18})?", re.ASCII)
)
KEEP_ALIVE: Final = Header(
    "X-Modelsup-Keep-Alive",
    "how long the model stays after this request: a duration, or a negative one for always",
    re.compile(r"\s*-?\s*[0-9]{1,30}(\.[0-9]{1,30})?\s*(ms|s|m|h|d)?\s*", re.ASCII),
)
REQUEST_TIMEOUT: Final = Header(
    "X-Request-Timeout",
    "seconds within which the whole answer is wanted",
    re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?", re.ASCII),
)
JSON_SIZE: Final = Header(
    "Inference-Header-Content-Length",
    "bytes of the JSON that binary tensors follow",
    re.compile("[0-9]{1,15}", re.ASCII),
)
