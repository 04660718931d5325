"""The form in which workers take and give tensors: V2 infer, JSON with binary data. Pure."""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from ..errors import Invalid
from .tensors import TYPECODES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Headers = Sequence[tuple[bytes, bytes]]

JSON_SIZE: Final = b"inference-header-content-length"


class Tensor(NamedTuple):
    """One input or output; `data` are its raw bytes, see `tensors`."""

    name: str
    datatype: str
    shape: Sequence[int]
    data: bytes | memoryview
    parameters: Mapping[str, Any] = {}


def checked(tensor: Tensor) -> Tensor:
    """Return the tensor. Raises Invalid where its bytes are not those of its shape."""
    code = TYPECODES.get(tensor.datatype)
    if code is not None:
        size = math.prod(tensor.shape) * struct.calcsize(code)
        if size != len(tensor.data):
            raise Invalid(
                f"input {tensor.name!r}: {tensor.datatype} of shape {list(tensor.shape)} takes "
                f"{size} bytes, but the data has {len(tensor.data)}"
            )
    return tensor


class Answer(NamedTuple):
    """What a worker answered."""

    model: str
    version: str
    identity: str
    outputs: list[Tensor]


def encode(
    inputs: Sequence[Tensor],
    outputs: Iterable[Mapping[str, Any]] = (),
    parameters: Mapping[str, Any] | None = None,
    identity: str = "",
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body of a request. `outputs` are V2's entries; without any, all come."""
    head: dict[str, Any] = {
        "inputs": [
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": tensor.shape,
                "parameters": {**tensor.parameters, "binary_data_size": len(tensor.data)},
            }
            for tensor in inputs
        ],
        "parameters": {**(parameters or {}), "binary_data_output": True},
    }
    if identity:
        head["id"] = identity
    if outputs:
        head["outputs"] = list(outputs)
    text = orjson.dumps(head)
    headers = [
        (b"content-type", b"application/octet-stream"),
        (JSON_SIZE, b"%d" % len(text)),
    ]
    return headers, b"".join((text, *(tensor.data for tensor in inputs)))


def decode(headers: Headers, body: bytes) -> Answer:
    """Return a worker's answer. Raises ValueError where it is none."""
    size = next((int(value) for name, value in headers if name == JSON_SIZE), len(body))
    document = orjson.loads(body[:size])
    binary = memoryview(body)
    outputs = []
    for entry in document["outputs"]:
        length = entry["parameters"]["binary_data_size"]
        data = binary[size : size + length]
        outputs.append(Tensor(entry["name"], entry["datatype"], entry["shape"], data))
        size += length
    name, version = document["model_name"], document["model_version"]
    return Answer(name, version, document.get("id", ""), outputs)
