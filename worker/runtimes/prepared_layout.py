"""The files of a prepared TensorFlow model, and its index. Standard library only.

`index.json` says what there is, `functions.pb` holds the computation (a GraphDef of which only
the library is used), and `weights.bin` the large constants, each at a multiple of 64 bytes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ..contract import Signature, signature_from

if TYPE_CHECKING:
    from pathlib import Path

INDEX: Final = "index.json"
FUNCTIONS: Final = "functions.pb"
WEIGHTS: Final = "weights.bin"
ALIGNMENT: Final = 64  # bytes: what TensorFlow demands of memory that it does not copy


@dataclass(frozen=True, slots=True)
class Weight:
    """A tensor in the file of weights."""

    dtype: str  # TensorFlow's name
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file


@dataclass(frozen=True, slots=True)
class Function:
    """The function that computes a signature.

    It takes the signature's inputs and then the weights of these positions in `Index.weights`.
    """

    signature: Signature
    name: str
    weights: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """What a prepared model holds."""

    made_by: str  # what must be the same in the process that loads it
    functions: tuple[Function, ...]
    weights: tuple[Weight, ...]


def write_index(folder: Path, index: Index) -> None:
    """Write the index. Raises OSError."""
    (folder / INDEX).write_text(json.dumps(asdict(index)))


def read_index(folder: Path) -> Index:
    """Read the index. Raises OSError, and ValueError, TypeError or KeyError on another form."""
    data: dict[str, Any] = json.loads((folder / INDEX).read_text())
    functions = (
        Function(signature_from(f["signature"]), f["name"], tuple(f["weights"]))
        for f in data["functions"]
    )
    weights = (Weight(w["dtype"], tuple(w["shape"]), w["offset"]) for w in data["weights"])
    return Index(data["made_by"], tuple(functions), tuple(weights))
