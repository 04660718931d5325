"""TensorFlow Serving's REST predict bodies, in row ("instances") and column ("inputs") form."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from .base import BadInput, Body, Request, listed
from .check import check_names, check_shapes, choose_signature, from_json
from .dtypes import STRING, name_of
from .json_text import number_text, parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..contract import Signature

    Array = np.ndarray[Any, Any]


def decode(body: Body, signatures: Mapping[str, Signature]) -> Request:
    """Return the request in a predict body. Raises BadInput.

    A signature with one input takes it with or without its name. In row form the rows are
    stacked; each row has the input's shape without its first dimension. A last dimension of
    size 1 may be left out.
    """
    document = parse_object(body)
    signature = choose_signature(signatures, document.get("signature_name"))
    in_rows = "instances" in document
    if in_rows == ("inputs" in document):
        raise BadInput('the body must hold either "instances" (rows) or "inputs" (columns)')
    if in_rows:
        columns = _stacked(document.pop("instances"), signature)
    else:
        columns = _named(document.pop("inputs"), signature)
    inputs = {info.name: from_json(info, columns.pop(info.name)) for info in signature.inputs}
    options = {"in_rows": in_rows}
    try:
        rows = check_shapes(signature, inputs)
    except BadInput:
        if not _widened(signature, inputs):
            raise
        options["narrow"] = True
        rows = check_shapes(signature, inputs)
    return Request(signature.name, inputs, rows, options)


def _widened(signature: Signature, inputs: dict[str, Array]) -> bool:
    """Add last dimensions of size 1 that were left out; say whether there were any.

    TensorFlow Serving hands on what it gets, so that its own first example sends plain numbers to
    a model of columns, and gets plain numbers back.
    """
    changed = False
    for info in signature.inputs:
        array = inputs[info.name]
        shape = info.shape or ()
        if shape and shape[-1] == 1 and array.ndim == len(shape) - 1:
            inputs[info.name] = array[..., None]
            changed = True
    return changed


def _names_inputs(value: Any, signature: Signature) -> bool:
    """Tell an object of named inputs from the string {"b64": "..."}."""
    if type(value) is not dict:
        return False
    return value.keys() != {"b64"} or any(info.name == "b64" for info in signature.inputs)


def _named(value: Any, signature: Signature) -> dict[str, Any]:
    if _names_inputs(value, signature):
        check_names(signature, value)
        return dict(value)
    if len(signature.inputs) == 1:
        return {signature.inputs[0].name: value}
    raise BadInput(
        f'"inputs" must be an object that holds: {listed(i.name for i in signature.inputs)}'
    )


def _stacked(instances: Any, signature: Signature) -> dict[str, Any]:
    if type(instances) is not list:
        raise BadInput('"instances" must be a list with one entry per row')
    names = [info.name for info in signature.inputs]
    if instances and _names_inputs(instances[0], signature):
        _check_row_names(instances, signature)
        return {name: [row[name] for row in instances] for name in names}
    if len(names) == 1:
        return {names[0]: instances}
    if instances:
        raise BadInput(f"every instance must be an object that holds: {listed(names)}")
    return {name: [] for name in names}


def _check_row_names(instances: list[Any], signature: Signature) -> None:
    expected = {info.name for info in signature.inputs}
    for number, row in enumerate(instances):
        if type(row) is not dict:
            raise BadInput(f"instance {number} must be an object like instance 0")
        if row.keys() != expected:
            try:
                check_names(signature, row)
            except BadInput as error:
                raise BadInput(f"instance {number}: {error}") from None


def encode(request: Request, outputs: Mapping[str, Array]) -> bytes:
    """Return the answer to `request`, in the form in which it came.

    One output stands without its name. Bytes are written as base64 where the output's name
    ends in "_bytes" or where they are not UTF-8. Raises BadInput where an output has no rows
    to answer in row form, or a type that JSON cannot carry.
    """
    if "narrow" in request.options:
        outputs = {name: _narrowed(array) for name, array in outputs.items()}
    if request.options["in_rows"]:
        _check_rows(outputs)
    if len(outputs) == 1:
        ((name, array),) = outputs.items()
        text = _text(name, array)
    elif request.options["in_rows"]:
        text = _rows_text(outputs)
    else:
        text = _object_text({name: _text(name, array) for name, array in outputs.items()})
    key = b'{"predictions":' if request.options["in_rows"] else b'{"outputs":'
    return b"".join((key, text, b"}"))


def _narrowed(array: Array) -> Array:
    return array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 else array


def _check_rows(outputs: Mapping[str, Array]) -> None:
    sizes = {array.shape[:1] for array in outputs.values()}
    if len(sizes) > 1 or () in sizes:
        shapes = listed(f"{name} {list(array.shape)}" for name, array in outputs.items())
        raise BadInput(
            f'the outputs do not share their first dimension ({shapes}); send "inputs" '
            'instead of "instances"'
        )


def _rows_text(outputs: Mapping[str, Array]) -> bytes:
    count = next(iter(outputs.values())).shape[0] if outputs else 0
    rows = (
        _object_text({name: _text(name, array[i, ...]) for name, array in outputs.items()})
        for i in range(count)
    )
    return b"[" + b",".join(rows) + b"]"


def _object_text(members: Mapping[str, bytes]) -> bytes:
    return b"{" + b",".join(orjson.dumps(k) + b":" + v for k, v in members.items()) + b"}"


def _text(name: str, array: Array) -> bytes:
    if name_of(array.dtype) != STRING:
        return number_text(array)
    as_base64 = name.endswith("_bytes")
    values = np.empty(array.shape, dtype=object)
    values.reshape(-1)[:] = [_json_string(item, as_base64) for item in array.reshape(-1).tolist()]
    return orjson.dumps(values.tolist())


def _json_string(item: bytes | str, as_base64: bool) -> str | dict[str, str]:
    if isinstance(item, str):
        item = item.encode()
    if not as_base64:
        try:
            return item.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(item).decode()}
