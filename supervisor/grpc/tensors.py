"""Tensors between their raw bytes, in which they travel to workers, and typed fields. Pure.

The raw bytes are those of V2's binary form: little-endian numbers, row by row; for BYTES each
element after its length in 4 bytes.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Any, Final

from ..errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

BYTES: Final = "BYTES"
TYPECODES: Final = {  # of array and memoryview; those of 16 bits are held as their bits
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "H",
    "BF16": "H",
    "FP32": "f",
    "FP64": "d",
}
DATATYPES: Final = (*TYPECODES, BYTES)

_LENGTH: Final = struct.Struct("<I")
_PACKED: Final = 2  # the wire type of packed numbers
_FIXED: Final = ("f", "d")  # typecodes whose packed form is their raw bytes


def to_raw(datatype: str, elements: Iterable[Any]) -> bytes:
    """Return elements as raw bytes. Raises Invalid for a value out of range."""
    if datatype == BYTES:
        return b"".join(_length_and_bytes(value) for value in elements)
    code = TYPECODES[datatype]
    try:
        return bytes(elements) if code == "?" else array(code, elements).tobytes()
    except OverflowError as error:
        raise Invalid(f"a value does not fit into {datatype}: {error}") from error


def values(datatype: str, raw: bytes | memoryview) -> Iterable[Any]:
    """Return the elements in raw bytes."""
    code: Any = TYPECODES.get(datatype)
    return _split(raw) if datatype == BYTES else memoryview(raw).cast(code)


def fill(message: Any, field: str, datatype: str, raw: bytes | memoryview) -> None:
    """Add the values in raw bytes to a repeated field of a message."""
    if TYPECODES.get(datatype) in _FIXED:
        # Much faster than number by number.
        tag = message.DESCRIPTOR.fields_by_name[field].number << 3 | _PACKED
        message.MergeFromString(b"".join((_varint(tag), _varint(len(raw)), raw)))
    else:
        getattr(message, field).extend(values(datatype, raw))


def _split(raw: bytes | memoryview) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size + length
        yield bytes(raw[at - length : at])


def _length_and_bytes(value: bytes) -> bytes:
    return _LENGTH.pack(len(value)) + value


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
