"""JSON as model servers speak it: fast, and with the literals NaN and Infinity both ways."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import orjson

from .base import BadInput, Body
from .dtypes import V2_DATATYPES, name_of

_STRING_OR_INF: Final = re.compile(r'("(?:[^"\\]|\\.)*")|\bInf\b')


def parse_object(body: Body) -> dict[str, Any]:
    """Return the JSON object in `body`. Raises BadInput if it is not JSON, or no object.

    Beyond JSON, numbers may be NaN, Infinity, -Infinity, Inf and -Inf.
    """
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        document = _parse_with_literals(body, error)
    if not isinstance(document, dict):
        raise BadInput("the body must be a JSON object")
    return document


def _parse_with_literals(body: Body, first_error: orjson.JSONDecodeError) -> Any:
    if b"NaN" not in body and b"Inf" not in body:
        raise BadInput(f"the body is not JSON: {first_error}")
    try:
        text = _STRING_OR_INF.sub(lambda match: match[1] or "Infinity", body.decode())
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON: {error}") from None


def number_text(array: np.ndarray[Any, Any]) -> bytes:
    """Return a tensor of numbers or bools as nested JSON lists, a scalar where it has no rank.

    Writes NaN, Infinity and -Infinity as literals. Raises BadInput on a type that JSON cannot
    carry.
    """
    dtype = array.dtype
    if dtype.kind in "OSU" or name_of(dtype) not in V2_DATATYPES:
        raise BadInput(f"an output of type {dtype} cannot be written as JSON")
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        array = array.astype(np.float32)  # float16, bfloat16
    elif not array.flags.c_contiguous:
        array = array.copy(order="C")
    value = array if array.ndim else array[()]
    text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    # orjson writes null for what is not finite, and for nothing else in a tensor.
    return _with_literals(text, array) if b"null" in text else text


def _with_literals(text: bytes, array: np.ndarray[Any, Any]) -> bytes:
    pieces = text.split(b"null")
    merged = [pieces[0]]
    for value, piece in zip(array[~np.isfinite(array)].tolist(), pieces[1:], strict=True):
        merged += (json.dumps(value).encode(), piece)
    return b"".join(merged)
