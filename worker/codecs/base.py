"""What all codecs share: the decoded request, and the error for one that cannot be used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class BadInput(Exception):
    """A request that names the wrong thing. The message says which input and what was expected."""


@dataclass(slots=True)
class Request:
    """A decoded request whose inputs conform to its signature."""

    signature: str
    inputs: dict[str, np.ndarray[Any, Any]]
    rows: int | None  # size of the shared first dimension where the signature is batchable
    options: dict[str, Any] = field(default_factory=dict)  # what the codec needs for the answer
