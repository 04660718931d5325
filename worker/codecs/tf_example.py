"""Serialised tf.train.Example messages from JSON features, in protobuf's wire format.

An Example is one field, Features; that is a map from names to Feature; and a Feature is one list:
of bytes, of 32-bit floats, or of 64-bit integers. Maps are written as repeated entries.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import TYPE_CHECKING, Any, Final

from .base import BadInput, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

# A field's tag is its number and its wire type; all here have a length ahead of their content.
_FIRST: Final = b"\x0a"  # field 1: Example.features, Features.feature, a map's key, a list's items
_SECOND: Final = b"\x12"  # field 2: a map's value
_BYTES_LIST: Final = b"\x0a"
_FLOAT_LIST: Final = b"\x12"
_INT64_LIST: Final = b"\x1a"


def serialised(features: Mapping[str, Any], context: bytes = b"") -> bytes:
    """Return an Example with these features and those of `context`. Raises BadInput.

    A feature is a value or a list of values: numbers, true and false, strings, or
    {"b64": "..."}. Whole numbers and bools make a list of integers, unless one among them is no
    whole number; then all are floats.
    """
    return _field(_FIRST, context + entries(features))


def entries(features: Mapping[str, Any]) -> bytes:
    """Return the map entries of features, which may stand in many examples. Raises BadInput."""
    parts: list[bytes] = []
    for name, value in features.items():
        key = _field(_FIRST, _encoded(name, name))
        parts.append(_field(_FIRST, key + _field(_SECOND, _feature(name, value))))
    return b"".join(parts)


def _feature(name: str, value: Any) -> bytes:
    values = value if type(value) is list else [value]
    kinds = set(map(type, values))
    if not kinds:
        return b""
    if kinds <= {bool, int}:
        return _field(_INT64_LIST, _field(_FIRST, _integers(name, values)))
    if kinds <= {bool, int, float}:
        return _field(_FLOAT_LIST, _field(_FIRST, _floats(name, values)))
    if kinds <= {str, dict}:
        items = (_field(_FIRST, _bytes_of(name, item)) for item in values)
        return _field(_BYTES_LIST, b"".join(items))
    raise BadInput(
        f"feature {name!r}: expected numbers or strings, of one kind, alone or in a flat list; "
        f"got {shown(value)}"
    )


def _integers(name: str, values: list[int]) -> bytes:
    if min(values) < -(2**63) or max(values) >= 2**63:
        raise BadInput(f"feature {name!r}: a whole number does not fit into 64 bits")
    return b"".join(_varint(number & (2**64 - 1)) for number in values)


def _floats(name: str, values: list[float]) -> bytes:
    try:
        return struct.pack(f"<{len(values)}f", *values)
    except OverflowError:
        raise BadInput(f"feature {name!r}: a number is out of the range of float32") from None


def _bytes_of(name: str, item: Any) -> bytes:
    if type(item) is str:
        return _encoded(name, item)
    try:
        if item.keys() == {"b64"}:
            return base64.b64decode(item["b64"], validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise BadInput(f"feature {name!r}: {shown(item)} does not hold valid base64") from None
    raise BadInput(f'feature {name!r}: {shown(item)} is neither a string nor {{"b64": "..."}}')


def _encoded(name: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadInput(f"feature {shown(name)}: {shown(text)} is not valid text") from None


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Return 7 bits to a byte, the lowest first; the top bit says that more follow."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
