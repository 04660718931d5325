"""Bodies that are one array in numpy's own file format, read without copying the numbers."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .base import BadInput, Body, NotAcceptable, Request, listed
from .check import cast, check_shapes, choose_signature
from .dtypes import STRING, name_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..contract import Signature

    Array = np.ndarray[Any, Any]

MEDIA_TYPE: Final = b"application/x-npy"

_LONGEST_HEAD: Final = 64 * 1024  # bytes; numpy itself allows 10,000 characters
_KINDS: Final = "biufSU"  # of numpy: bools, integers, floats, bytes, text


def decode(body: Body, signatures: Mapping[str, Signature]) -> Request:
    """Return a request to the default signature, whose one input is the array. Raises BadInput."""
    signature = choose_signature(signatures, None)
    return request_of(signature, _read(body))


def request_of(signature: Signature, array: Array) -> Request:
    """Return a request whose only input is `array`, answered in any form. Raises BadInput."""
    if len(signature.inputs) != 1:
        raise BadInput(
            f"one array was sent, but signature {signature.name!r} has the inputs "
            f"{listed(i.name for i in signature.inputs)}; send JSON or V2 tensors"
        )
    info = signature.inputs[0]
    inputs = {info.name: cast(info, array)}
    rows = check_shapes(signature, inputs)
    return Request(signature.name, inputs, rows)


def _read(body: Body) -> Array:
    file = io.BytesIO(body[:_LONGEST_HEAD])
    try:
        version = np.lib.format.read_magic(file)
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[version]
        shape, by_column, dtype = read_header(file)
    except (ValueError, KeyError, SyntaxError) as error:
        raise BadInput(f"the body is not an array in .npy format: {error}") from None
    if dtype.kind not in _KINDS:
        raise BadInput(f"the array is of type {dtype}; send numbers, bools or strings")
    count = math.prod(shape)
    start = file.tell()
    if len(body) - start != count * dtype.itemsize:
        raise BadInput(
            f"the array's shape {list(shape)} of {dtype} takes {count * dtype.itemsize} bytes, "
            f"but {len(body) - start} follow the header"
        )
    flat = np.frombuffer(body, dtype, count, start) if count else np.empty(0, dtype)
    if dtype.kind in "SU":
        flat = _bytes_objects(flat)
    return flat.reshape(shape, order="F" if by_column else "C")


def _bytes_objects(flat: Array) -> Array:
    array = np.empty(len(flat), dtype=object)
    array[:] = [i.encode() if isinstance(i, str) else i for i in flat.tolist()]
    return array


def encode(outputs: Mapping[str, Array]) -> list[bytes | memoryview]:
    """Return the only output as a .npy body. Raises NotAcceptable where it cannot be one."""
    if len(outputs) != 1:
        raise NotAcceptable(
            f"a .npy body carries one array, but the model has the outputs {listed(outputs)}; "
            "ask for JSON or V2 tensors"
        )
    ((name, array),) = outputs.items()
    if name_of(array.dtype) == STRING:
        raise NotAcceptable(
            f"output {name!r} holds strings, which a .npy body cannot carry as they are; "
            "ask for JSON or V2 tensors"
        )
    if array.dtype.kind not in _KINDS:
        array = array.astype(np.float32)  # bfloat16, which the format has no name for
    array = np.ascontiguousarray(array)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
    return [head.getvalue(), array.reshape(-1).view(np.uint8).data]
