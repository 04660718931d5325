"""What all codecs share: the decoded request, and the error for one that cannot be used."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np


class BadInput(Exception):
    """A request that cannot be served. The message says which part and what was expected."""


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
