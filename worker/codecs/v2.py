"""KServe Open Inference Protocol V2 infer bodies: JSON, and tensors in binary beside it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from ..contract import TensorInfo
from .base import BadInput, Body, Request, listed, shown
from .check import cast, check_names, check_shapes, choose_signature, from_json
from .dtypes import NAMES_BY_DATATYPE, STRING, V2_DATATYPES, name_of
from .json_text import number_text, parse_object
from .top_k import classified
from .v2_binary import read_tensor, tensor_buffer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

    from ..contract import Signature

    Array = np.ndarray[Any, Any]


_MOST_DIMENSIONS: Final = 64  # numpy's bound


class Wanted(NamedTuple):
    """How an output is to be answered."""

    binary: bool  # as bytes beside the JSON
    classes: int = 0  # the highest values alone, as so many strings; 0: the tensor


_AS_JSON: Final = Wanted(binary=False)
_AS_BINARY: Final = Wanted(binary=True)


class Answer(NamedTuple):
    """An infer answer's body, in pieces so that large tensors are not copied."""

    buffers: list[bytes | memoryview]
    json_size: int | None  # bytes of JSON ahead of the binary data; None: all is JSON


def decode(body: Body, json_size: int | None, signatures: Mapping[str, Signature]) -> Request:
    """Return the request in an infer body. Raises BadInput.

    `json_size` is the header Inference-Header-Content-Length: how many bytes of JSON stand
    ahead of the binary data; None where all is JSON. The request's parameter "signature_name"
    chooses another signature than the default.
    """
    if json_size is not None and not 0 < json_size <= len(body):
        raise BadInput(
            f"Inference-Header-Content-Length is {json_size}, but the body has {len(body)} bytes"
        )
    document = parse_object(body if json_size is None else body[:json_size])
    parameters = _parameters(document, "the request")
    signature = choose_signature(signatures, parameters.get("signature_name"))
    identity = document.get("id")
    if identity is not None and not isinstance(identity, str):
        raise BadInput(f'"id" must be a string, not {shown(identity)}')
    wanted = _wanted_outputs(document, signature, parameters)
    binary = memoryview(body)[len(body) if json_size is None else json_size :]
    inputs = _inputs(document, signature, binary)
    rows = check_shapes(signature, inputs)
    return Request(signature.name, inputs, rows, {"id": identity, "outputs": wanted})


def _parameters(holder: Mapping[str, Any], owner: str) -> dict[str, Any]:
    parameters = holder.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise BadInput(f'"parameters" of {owner} must be an object')
    return parameters


def _entries(document: Mapping[str, Any], key: str) -> dict[str, dict[str, Any]]:
    """Return the objects of a list by their names."""
    entries = document.get(key)
    if entries is None:
        return {}
    if not isinstance(entries, list):
        raise BadInput(f'"{key}" must be a list of objects')
    by_name: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, dict) else None
        if not isinstance(name, str):
            raise BadInput(f'each entry of "{key}" must be an object with a "name"')
        if name in by_name:
            raise BadInput(f'"{key}" names {shown(name)} twice')
        by_name[name] = entry
    return by_name


def _wanted_outputs(
    document: Mapping[str, Any], signature: Signature, parameters: Mapping[str, Any]
) -> dict[str, Wanted]:
    """Return the outputs to answer, and how."""
    default = _AS_BINARY if parameters.get("binary_data_output", False) is True else _AS_JSON
    names = [info.name for info in signature.outputs]
    entries = _entries(document, "outputs")
    if not entries:
        return dict.fromkeys(names, default)
    wanted = {}
    for name, entry in entries.items():
        if name not in names:
            raise BadInput(f"unknown output {shown(name)}; the model has: {listed(names)}")
        own = _parameters(entry, f"output {name!r}")
        if "shared_memory_region" in own:
            raise BadInput(f"output {name!r}: shared memory is not supported; take the data")
        classes = own.get("classification", 0)
        if type(classes) is not int or classes < 0:
            raise BadInput(
                f"output {name!r}: classification must be a number of classes, not {shown(classes)}"
            )
        wanted[name] = Wanted(own.get("binary_data", default.binary) is True, classes)
    return wanted


def _inputs(
    document: Mapping[str, Any], signature: Signature, binary: memoryview
) -> dict[str, Array]:
    entries = _entries(document, "inputs")
    check_names(signature, entries)
    infos = {info.name: info for info in signature.inputs}
    inputs, at = {}, 0
    for name, entry in entries.items():  # the order of the binary data
        size = _binary_size(name, entry, len(binary) - at)
        array = _tensor(name, entry, None if size is None else binary[at : at + size])
        inputs[name] = cast(infos[name], array)
        at += size or 0
    if at != len(binary):
        raise BadInput(f"{len(binary) - at} bytes of binary data belong to no input")
    return inputs


def _binary_size(name: str, entry: Mapping[str, Any], left: int) -> int | None:
    parameters = _parameters(entry, f"input {name!r}")
    if "shared_memory_region" in parameters:
        raise BadInput(f"input {name!r}: shared memory is not supported; send the data")
    size = parameters.get("binary_data_size")
    if size is None:
        return None
    if type(size) is not int or not 0 <= size <= left:
        raise BadInput(
            f"input {name!r}: binary_data_size is {shown(size)}, but {left} bytes are left after "
            "the JSON; is the header Inference-Header-Content-Length set?"
        )
    return size


def _tensor(name: str, entry: Mapping[str, Any], binary: memoryview | None) -> Array:
    dtype = NAMES_BY_DATATYPE.get(str(entry.get("datatype")))
    if dtype is None:
        raise BadInput(
            f"input {name!r}: datatype {shown(entry.get('datatype'))} is none of "
            f"{listed(NAMES_BY_DATATYPE)}"
        )
    shape = _shape(name, entry.get("shape"))
    if (binary is None) != ("data" in entry):
        raise BadInput(f'input {name!r} must have either "data" or binary_data_size')
    count = math.prod(shape)
    if binary is None:
        array = from_json(TensorInfo(name, dtype, None), entry["data"])
    else:
        array = read_tensor(name, dtype, count, binary)
    if array.size != count:
        raise BadInput(
            f"input {name!r}: shape {shown(shape)} takes {count} elements, but the data has "
            f"{array.size}"
        )
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError):
        raise BadInput(f"input {name!r}: shape {shown(shape)} is too large") from None


def _shape(name: str, shape: Any) -> list[int]:
    if (
        type(shape) is not list
        or len(shape) > _MOST_DIMENSIONS
        or any(type(size) is not int or not 0 <= size < 2**63 for size in shape)
    ):
        raise BadInput(f'input {name!r}: "shape" must be a list of sizes, not {shown(shape)}')
    return shape


def encode(
    request: Request,
    outputs: Mapping[str, Array],
    model: str,
    version: str,
    class_names: Sequence[str] = (),
) -> Answer:
    """Return the answer to `request`, with the outputs that it asked for.

    Raises BadInput on an output that JSON cannot carry: bytes that are not UTF-8.
    """
    head: dict[str, Any] = {"model_name": model, "model_version": version}
    if request.options["id"] is not None:
        head["id"] = request.options["id"]
    entries: list[bytes] = []
    buffers: list[bytes | memoryview] = []
    for name, wanted in request.options["outputs"].items():
        array = outputs[name]
        if wanted.classes:
            array = classified(name, array, request.rows, wanted.classes, class_names)
        entry: dict[str, Any] = {
            "name": name,
            "datatype": V2_DATATYPES.get(name_of(array.dtype)),
            "shape": array.shape,
        }
        if wanted.binary:
            buffer = tensor_buffer(array)
            buffers.append(buffer)
            entry["parameters"] = {"binary_data_size": len(buffer)}
            entries.append(orjson.dumps(entry))
        else:
            entries.append(orjson.dumps(entry)[:-1] + b',"data":' + _data(name, array) + b"}")
    text = orjson.dumps(head)[:-1] + b',"outputs":[' + b",".join(entries) + b"]}"
    return Answer([text, *buffers], len(text) if buffers else None)


def _data(name: str, array: Array) -> bytes:
    flat = array.reshape(-1)
    if name_of(array.dtype) != STRING:
        return number_text(flat)
    try:
        return orjson.dumps([i if isinstance(i, str) else i.decode() for i in flat.tolist()])
    except UnicodeDecodeError:
        raise BadInput(
            f"output {name!r} holds bytes that are not UTF-8; ask for it as binary data"
        ) from None
