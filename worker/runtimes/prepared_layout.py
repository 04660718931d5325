"""The files of a prepared TensorFlow model, and its index. Standard library only.

`index` says what there is, `functions.pb` holds the computation (a GraphDef of which only the
library is used), and `weights.bin` the large constants, each at a multiple of 64 bytes.

The index is a line with its own checksum and a line of JSON. It has the checksum of the functions,
and the size of the weights: their content takes too long to read at each load.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from ..contract import DeviceKind, Signature, signature_from

if TYPE_CHECKING:
    from pathlib import Path

INDEX: Final = "index"
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
    device: DeviceKind  # what it was made for
    functions_digest: str  # hexadecimal, SHA-256 of the file of functions
    weights_bytes: int  # size of the file of weights
    functions: tuple[Function, ...]
    weights: tuple[Weight, ...]


def write_index(folder: Path, index: Index) -> None:
    """Write the index. Raises OSError."""
    line = json.dumps(asdict(index)).encode()
    (folder / INDEX).write_bytes(digest_of(line).encode() + b"\n" + line)


def read_index(folder: Path) -> Index:
    """Read the index. Raises OSError, ValueError on a damaged one, and KeyError or TypeError."""
    digest, _, line = (folder / INDEX).read_bytes().partition(b"\n")
    if digest != digest_of(line).encode():
        raise ValueError(f"{INDEX} is damaged")
    data: dict[str, Any] = json.loads(line)
    functions = (
        Function(signature_from(f["signature"]), f["name"], tuple(f["weights"]))
        for f in data.pop("functions")
    )
    weights = (Weight(w["dtype"], tuple(w["shape"]), w["offset"]) for w in data.pop("weights"))
    return Index(functions=tuple(functions), weights=tuple(weights), **data)


def read_functions(folder: Path, index: Index) -> bytes:
    """Read the file of functions. Raises OSError, and ValueError on a damaged one."""
    data = (folder / FUNCTIONS).read_bytes()
    if digest_of(data) != index.functions_digest:
        raise ValueError(f"{FUNCTIONS} is damaged")
    return data


def digest_of(data: bytes) -> str:
    """Return the checksum of a file's content."""
    return hashlib.sha256(data).hexdigest()
