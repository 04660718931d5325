"""What all codecs share: the decoded request, and the error for one that cannot be used."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np

Body: TypeAlias = bytes | bytearray  # of a request; large ones are the latter


class BadInput(Exception):
    """A request that cannot be served. The message says which part and what was expected."""

    status: ClassVar[int] = 400


class TooLarge(BadInput):
    """A body that is larger, once unpacked, than bodies may be."""

    status = 413


class NotAcceptable(BadInput):
    """An answer that cannot take the form that was asked for."""

    status = 406


class UnsupportedBody(BadInput):
    """A body of a kind that this model, or this worker, does not read."""

    status = 415


@dataclass(slots=True)
class Request:
    """A decoded request whose inputs conform to its signature."""

    signature: str
    inputs: dict[str, np.ndarray[Any, Any]]
    rows: int | None  # size of the shared first dimension where the signature is batchable
    options: dict[str, Any] = field(default_factory=dict)  # what the codec needs for the answer


def shown(value: object) -> str:
    """Return a short form of a client's value, fit for an error message."""
    return reprlib.repr(value)


def listed(names: Iterable[str]) -> str:
    """Return names as a sorted list for an error message, or "none"."""
    return ", ".join(sorted(names)) or "none"
