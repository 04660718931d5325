"""The highest values of an output, as class numbers and names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from .base import BadInput
from .dtypes import STRING, name_of
from .json_text import number_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Array = np.ndarray[Any, Any]


def highest(name: str, array: Array, rows: int | None, count: int) -> tuple[Array, Array]:
    """Return (class numbers, values) of the `count` highest values, the highest first.

    `array` is an output with that many `rows`, None where it has none. The results have the shape
    [rows, count], or [count]. Of equal values the first counts as higher, and NaN as lowest.
    Raises BadInput on an output of strings.
    """
    if name_of(array.dtype) == STRING:
        raise BadInput(f"output {name!r} holds strings, which have no highest value")
    scores = array.reshape(-1 if rows is None else (rows, -1)) if array.size else array
    keys = np.nan_to_num(scores, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    backwards = np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    order = keys.shape[-1] - 1 - backwards[..., :count]
    return order, np.take_along_axis(scores, order, axis=-1)


def classified(
    name: str, array: Array, rows: int | None, count: int, names: Sequence[str]
) -> Array:
    """Return V2's classification of an output: bytes "value:number", or "value:number:name"."""
    order, values = highest(name, array, rows, count)
    found = np.empty(order.shape, dtype=object)
    found.reshape(-1)[:] = [
        b"%b:%d%b" % (text, number, b":" + names[number].encode() if number < len(names) else b"")
        for text, number in _pairs(order, values)
    ]
    return found


def as_json(name: str, array: Array, rows: int | None, count: int, names: Sequence[str]) -> bytes:
    """Return the classes as JSON: for each row a list of {"class", "index", "score"}."""
    order, values = highest(name, array, rows, count)
    texts = [
        b'{"class":%b,"index":%d,"score":%b}' % (_json_name(names, number), number, text)
        for text, number in _pairs(order, values)
    ]
    if rows is None:
        return b"[" + b",".join(texts) + b"]"
    width = order.shape[-1]
    lists = [b"[" + b",".join(texts[i * width : (i + 1) * width]) + b"]" for i in range(rows)]
    return b"[" + b",".join(lists) + b"]"


def _pairs(order: Array, values: Array) -> Iterator[tuple[bytes, int]]:
    text = number_text(values.reshape(-1))[1:-1]
    return zip(text.split(b",") if text else [], order.reshape(-1).tolist(), strict=True)


def _json_name(names: Sequence[str], number: int) -> bytes:
    return orjson.dumps(names[number] if number < len(names) else None)
