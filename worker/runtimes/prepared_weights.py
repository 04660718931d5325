"""Put weights into one file, and map them from there as tensors without a copy."""

from __future__ import annotations

import hashlib
import mmap
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorflow as tf

from .prepared_layout import ALIGNMENT, WEIGHTS, Weight

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedWriter
    from pathlib import Path

# What DLPack knows; the others travel as unsigned integers of their size.
KNOWN_TO_DLPACK: Final = frozenset(
    (
        *("float16", "float32", "float64", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    )
)
MAPPED: Final = KNOWN_TO_DLPACK | {"bfloat16"}  # dtypes that may be in the file


class WeightsWriter:
    """Writes weights, each distinct one once."""

    def __init__(self, stream: BufferedWriter) -> None:
        self._stream = stream
        self._positions: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self.weights: list[Weight] = []

    def add(self, dtype: str, array: np.ndarray[Any, Any]) -> int:
        """Write an array unless it is there. Returns its position in `weights`.

        Raises OSError.
        """
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
        key = (dtype, array.shape, hashlib.sha256(data).digest())
        if key not in self._positions:
            self._stream.write(bytes(-self._stream.tell() % ALIGNMENT))
            self._positions[key] = len(self.weights)
            self.weights.append(Weight(dtype, array.shape, self._stream.tell()))
            self._stream.write(data)
        return self._positions[key]


def map_weights(folder: Path, weights: Sequence[Weight], size: int) -> list[Any]:
    """Return the weights as tensors whose memory is the file's pages.

    Processes that map one file share its pages. The map is private and writable, for DLPack
    refuses memory that may not be written to; nothing does write to it. Raises OSError, and
    ValueError where the file does not have its `size` in bytes.
    """
    with (folder / WEIGHTS).open("rb") as stream:
        found = os.fstat(stream.fileno()).st_size
        if found != size:
            raise ValueError(f"{WEIGHTS} has {found} bytes, not {size}")
        if not weights:
            return []
        mapped = mmap.mmap(
            stream.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
    mapped.madvise(mmap.MADV_WILLNEED)  # a disk reads ahead while the functions are added
    return [_tensor(mapped, weight) for weight in weights]


def _tensor(mapped: mmap.mmap, weight: Weight) -> Any:
    dtype = tf.as_dtype(weight.dtype)
    known = weight.dtype in KNOWN_TO_DLPACK
    stored = np.dtype(weight.dtype if known else f"u{dtype.size}")
    array = np.ndarray(weight.shape, stored, buffer=mapped, offset=weight.offset)
    tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return tensor if known else tf.bitcast(tensor, dtype)  # shares the memory as well
