"""JSON to the frozen dataclasses of this library, so that each shape is written down once.

Unknown fields are ignored, and a field with a default may be absent: a client and a supervisor of
different versions understand each other.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from typing import Any, TypeVar

from .errors import ModelsupError

T = TypeVar("T")


def decode(shape: type[T], data: object) -> T:
    """Return `data`, parsed JSON, as an instance of the dataclass `shape`.

    Raises ModelsupError with code "bad_answer" that names the field which has another form.
    """
    try:
        return typing.cast("T", _dataclass(shape, data, shape.__name__))
    except TypeError as error:
        raise ModelsupError(
            f"the supervisor's answer has a form this client does not know: {error}; "
            "are both of the same version?",
            code="bad_answer",
        ) from error


@functools.cache
def _hints(shape: type) -> dict[str, Any]:
    return typing.get_type_hints(shape)


def _dataclass(shape: Any, data: object, path: str) -> object:
    if not isinstance(data, dict):
        raise TypeError(f"{path} is {_kind(data)}, not an object")
    hints = _hints(shape)
    values = {}
    for field in dataclasses.fields(shape):
        if field.name in data:
            where = f"{path}.{field.name}"
            values[field.name] = _value(hints[field.name], data[field.name], where)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise TypeError(f"{path} has no {field.name!r}")
    return shape(**values)


def _value(hint: Any, data: object, path: str) -> object:
    """Convert to dataclass, X | None, tuple[X, ...], dict[str, X], float, or check a plain type."""
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if origin is types.UnionType:
        return None if data is None else _value(arguments[0], data, path)
    if dataclasses.is_dataclass(hint):
        return _dataclass(hint, data, path)
    if origin is tuple and isinstance(data, list):
        return tuple(_value(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(data))
    if origin is dict and isinstance(data, dict):
        return {key: _value(arguments[1], item, f"{path}.{key}") for key, item in data.items()}
    if hint is float and type(data) is int:
        return float(data)
    if hint is not Any and not isinstance(data, origin or hint):
        raise TypeError(f"{path} is {_kind(data)}, not {(origin or hint).__name__}")
    return data


def _kind(data: object) -> str:
    return "null" if data is None else type(data).__name__
