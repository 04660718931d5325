"""Make the tensors of a request conform to a model's signature, or say why they do not.

One rule for types: a value may change its type if it keeps its value. So 3.0 is an int and 2.5
is not; 300 is no uint8; a float may lose digits but not become infinite; bools, numbers and
strings never turn into one another.
"""

from __future__ import annotations

import base64
import binascii
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from .base import BadInput, listed, shown
from .dtypes import STRING, family, name_of, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from ..contract import Signature, TensorInfo

    Array = np.ndarray[Any, Any]


def choose_signature(signatures: Mapping[str, Signature], name: object) -> Signature:
    """Return the signature that a request names; None and "" mean "serving_default"."""
    wanted = name or "serving_default"
    if not isinstance(wanted, str) or wanted not in signatures:
        raise BadInput(f"the model has no signature {shown(wanted)}; it has: {listed(signatures)}")
    return signatures[wanted]


def check_names(signature: Signature, names: Collection[str]) -> None:
    """Raise BadInput unless `names` are the names of the signature's inputs."""
    expected = {info.name for info in signature.inputs}
    if missing := expected.difference(names):
        raise BadInput(f"missing input {listed(missing)}; {_expects(signature)}")
    if unknown := set(names).difference(expected):
        raise BadInput(f"unknown input {listed(map(shown, unknown))}; {_expects(signature)}")


def _expects(signature: Signature) -> str:
    return f"signature {signature.name!r} expects: {listed(i.name for i in signature.inputs)}"


def from_json(info: TensorInfo, value: Any) -> Array:
    """Return a parsed JSON value as a tensor of the type of `info`.

    Lists may nest to any shape, which is left to `check_shapes`. An empty list stands for all
    the dimensions below it. Raises BadInput on ragged lists and on values of another type.
    """
    flat, shape = _flatten(info, value)
    kinds = set(map(type, flat))
    if list in kinds:
        raise _ragged(info)
    dtype = numpy_dtype(info.dtype)
    if not flat:
        return np.empty(_completed(shape, info.shape), dtype)
    if info.dtype == STRING:
        array = np.empty(len(flat), dtype=object)
        array[:] = [_bytes_of(info, leaf) for leaf in flat]
    elif family(dtype) == "bool":
        _check_kinds(info, flat, kinds, {bool})
        array = np.array(flat, dtype=dtype)
    else:
        _check_kinds(info, flat, kinds, {int, float})
        array = _numbers(info, flat, kinds, dtype)
    try:
        return array.reshape(shape)
    except ValueError:
        raise BadInput(f"{_label(info)}: {len(shape)} dimensions are too many") from None


def _flatten(info: TensorInfo, value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """Return the leaves of nested lists and their shape; leaves may still hold lists."""
    if type(value) is not list:
        return [value], ()
    shape = [len(value)]
    while value and type(value[0]) is list:
        if set(map(type, value)) != {list} or len(lengths := set(map(len, value))) > 1:
            raise _ragged(info)
        shape += lengths
        value = list(chain.from_iterable(value))
    return value, tuple(shape)


def _completed(shape: tuple[int, ...], expected: tuple[int | None, ...] | None) -> tuple[int, ...]:
    """Add the dimensions that an empty list cannot show."""
    missing = (expected or ())[len(shape) :]
    return shape + tuple(size or 0 for size in missing)


def _numbers(info: TensorInfo, flat: list[Any], kinds: set[type], dtype: np.dtype[Any]) -> Array:
    try:
        if family(dtype) == "float":
            return cast(info, np.array(flat, dtype=np.float64))
        if float in kinds:
            # By way of int, since float64 does not hold every 64-bit number beside it.
            flat = [_whole(info, number) for number in flat]
        _check_range(info, min(flat), max(flat), dtype)
        return np.array(flat, dtype=dtype)
    except OverflowError:  # an int of more than 1,023 bits
        raise BadInput(f"{_label(info)}: a number is out of range") from None


def _whole(info: TensorInfo, number: float) -> int:
    if not float(number).is_integer():
        raise BadInput(f"{_label(info)}: {number} is not a whole number")
    return int(number)


def _check_kinds(info: TensorInfo, flat: list[Any], kinds: set[type], wanted: set[type]) -> None:
    if not kinds <= wanted:
        wrong = next(leaf for leaf in flat if type(leaf) not in wanted)
        raise BadInput(f"{_label(info)}: {shown(wrong)} is of another type")


def _bytes_of(info: TensorInfo, leaf: Any) -> bytes:
    """Return the bytes of a JSON string, or of an object {"b64": "..."}."""
    try:
        if type(leaf) is str:
            return leaf.encode()
        if type(leaf) is dict and leaf.keys() == {"b64"}:
            return base64.b64decode(leaf["b64"], validate=True)
    except (binascii.Error, TypeError):
        raise BadInput(f"{_label(info)}: {shown(leaf)} does not hold valid base64") from None
    except ValueError:
        raise BadInput(f"{_label(info)}: {shown(leaf)} is not valid text") from None
    raise BadInput(f'{_label(info)}: {shown(leaf)} is neither a string nor {{"b64": "..."}}')


def cast(info: TensorInfo, array: Array) -> Array:
    """Return `array` in the type of `info`; itself where it has it already.

    Raises BadInput where a value cannot be kept.
    """
    dtype = numpy_dtype(info.dtype)
    if array.dtype == dtype:
        return array
    source, target = family(array.dtype), family(dtype)
    if source != target and not {source, target} <= {"integer", "float"}:
        raise BadInput(f"{_label(info)}: got {name_of(array.dtype)}")
    if target == "integer":
        return _to_integer(info, array, dtype)
    try:
        with np.errstate(over="raise", invalid="ignore"):
            return array.astype(dtype)
    except FloatingPointError:
        raise BadInput(f"{_label(info)}: a number is out of range") from None


def _to_integer(info: TensorInfo, array: Array, dtype: np.dtype[Any]) -> Array:
    if array.size:
        if family(array.dtype) == "float":
            array = array.astype(np.float64)
            broken = array[~np.isfinite(array) | (array != np.trunc(array))]
            if broken.size:
                raise BadInput(f"{_label(info)}: {broken[0]} is not a whole number")
        _check_range(info, int(array.min()), int(array.max()), dtype)
    return array.astype(dtype)


def _check_range(info: TensorInfo, low: int, high: int, dtype: np.dtype[Any]) -> None:
    limits = np.iinfo(dtype)
    if low < limits.min or high > limits.max:
        wrong = low if low < limits.min else high
        raise BadInput(f"{_label(info)}: {shown(wrong)} is out of range")


def check_shapes(signature: Signature, inputs: Mapping[str, Array]) -> int | None:
    """Check every input's shape; return the number of rows, None if not batchable.

    `inputs` holds the signature's inputs, all of them. Raises BadInput where a rank or a size
    differs, or where the inputs of a batchable signature have different numbers of rows.
    """
    rows: int | None = None
    for info in signature.inputs:
        shape = inputs[info.name].shape
        _check_shape(info, shape, signature.batchable)
        if not signature.batchable:
            continue
        if rows is not None and shape[0] != rows:
            counts = listed(f"{name} has {array.shape[0]}" for name, array in inputs.items())
            raise BadInput(f"the inputs differ in their number of rows: {counts}")
        rows = shape[0]
    return rows


def _check_shape(info: TensorInfo, shape: tuple[int, ...], batchable: bool) -> None:
    expected = info.shape
    if expected is None:
        if batchable and not shape:
            raise BadInput(f"{_label(info)}: a scalar has no rows; put it in a list")
        return
    if len(shape) == len(expected):
        for size, wanted in zip(shape, expected, strict=True):
            if wanted is not None and size != wanted:
                break
        else:
            return
    hint = ""
    if batchable and len(shape) == len(expected) - 1:
        hint = "; add a first dimension, one entry per row"
    raise BadInput(f"{_label(info)}: got shape {list(shape)}{hint}")


def _ragged(info: TensorInfo) -> BadInput:
    return BadInput(f"{_label(info)}: lists at the same depth differ in length or kind")


def _label(info: TensorInfo) -> str:
    """Name an input and what it expects; every message about a value begins with it."""
    if info.shape is None:
        return f"input {info.name!r} (expected {info.dtype})"
    sizes = ", ".join("?" if size is None else str(size) for size in info.shape)
    return f"input {info.name!r} (expected {info.dtype} of shape [{sizes}])"
