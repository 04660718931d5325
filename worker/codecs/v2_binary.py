"""V2's binary tensors: the bytes beside the JSON, read and written without copying numbers."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import BadInput
from .dtypes import STRING, name_of, numpy_dtype

if TYPE_CHECKING:
    Array = np.ndarray[Any, Any]

_LENGTH = struct.Struct("<I")


def read_tensor(name: str, dtype: str, count: int, data: memoryview) -> Array:
    """Return the `count` elements in `data`, flat; numbers share its memory, read-only.

    `dtype` is a signature's type name. Strings are written as a length of 4 bytes,
    little-endian, and the bytes. Raises BadInput where `data` holds more or fewer elements.
    """
    if dtype == STRING:
        return _read_strings(name, count, data)
    kind = numpy_dtype(dtype)  # little-endian, as every machine that runs TensorFlow is
    if len(data) != count * kind.itemsize:
        raise BadInput(
            f"input {name!r}: binary_data_size is {len(data)}, but {count} elements of {dtype} "
            f"take {count * kind.itemsize} bytes"
        )
    if kind.kind == "b" and (np.frombuffer(data, dtype=np.uint8) > 1).any():
        raise BadInput(f"input {name!r}: a byte of a BOOL must be 0 or 1")
    return np.frombuffer(data, dtype=kind)


def _read_strings(name: str, count: int, data: memoryview) -> Array:
    items: list[bytes] = []
    at, end = 0, len(data)
    while at + _LENGTH.size <= end:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size + length
        if at > end:
            break
        items.append(bytes(data[at - length : at]))
    if at != end or len(items) != count:
        raise BadInput(
            f"input {name!r}: the binary data is not {count} strings, each after its length in "
            "4 bytes, little-endian"
        )
    array = np.empty(count, dtype=object)
    array[:] = items
    return array


def tensor_buffer(array: Array) -> bytes | memoryview:
    """Return the bytes of a tensor in V2's binary form; numbers share the array's memory."""
    if name_of(array.dtype) == STRING:
        return b"".join(_length_and_bytes(item) for item in array.reshape(-1).tolist())
    numpy_dtype(name_of(array.dtype))  # refuses what V2 has no name for
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(np.uint8).data


def _length_and_bytes(item: bytes | str) -> bytes:
    data = item.encode() if isinstance(item, str) else item
    return _LENGTH.pack(len(data)) + data
