"""TensorFlow Serving's tensors to the form of workers and back. Pure: no calls, no state."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from ..errors import Invalid, TooLarge
from .schema import read_schema
from .tensors import BYTES, fill, to_raw
from .worker_body import Tensor, checked, encode

if TYPE_CHECKING:
    from .worker_body import Answer

SCHEMA: Final = read_schema("serving.proto")

_TYPES: Final = {  # datatype and field of the values, by the name of a DataType
    "DT_FLOAT": ("FP32", "float_val"),
    "DT_DOUBLE": ("FP64", "double_val"),
    "DT_HALF": ("FP16", "half_val"),
    "DT_BFLOAT16": ("BF16", "half_val"),
    "DT_INT8": ("INT8", "int_val"),
    "DT_INT16": ("INT16", "int_val"),
    "DT_INT32": ("INT32", "int_val"),
    "DT_INT64": ("INT64", "int64_val"),
    "DT_UINT8": ("UINT8", "int_val"),
    "DT_UINT16": ("UINT16", "int_val"),
    "DT_UINT32": ("UINT32", "uint32_val"),
    "DT_UINT64": ("UINT64", "uint64_val"),
    "DT_BOOL": ("BOOL", "bool_val"),
    "DT_STRING": (BYTES, "string_val"),
}
_NAMES: Final = {datatype: name for name, (datatype, _) in _TYPES.items()}
_LONGEST_VARINT: Final = 63  # bits of a length


def to_worker(request: Any, limit: int) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body for a worker of a PredictRequest.

    Raises Invalid, or TooLarge where one value stands for more than `limit` bytes.
    """
    inputs = [_tensor(name, proto, limit) for name, proto in sorted(request.inputs.items())]
    outputs = [{"name": name} for name in request.output_filter]
    signature = request.model_spec.signature_name
    return encode(inputs, outputs, {"signature_name": signature} if signature else None)


def from_worker(answer: Answer) -> Any:
    """Return the PredictResponse, without its model_spec.

    Values stand in the typed fields, as those of TensorFlow Serving do.
    """
    response = SCHEMA.messages.PredictResponse()
    for tensor in answer.outputs:
        name = _NAMES[tensor.datatype]
        proto = response.outputs[tensor.name]
        proto.dtype = name
        for size in tensor.shape:
            proto.tensor_shape.dim.add(size=size)
        fill(proto, _TYPES[name][1], tensor.datatype, tensor.data)
    return response


def _tensor(name: str, proto: Any, limit: int) -> Tensor:
    kind = SCHEMA.enums["DataType"].get(proto.dtype, str(proto.dtype))
    if kind not in _TYPES:
        raise Invalid(f"input {name!r}: tensors of {kind} cannot travel; use {', '.join(_TYPES)}")
    shape = [dim.size for dim in proto.tensor_shape.dim]
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise Invalid(f"input {name!r}: the shape of a value must be known; got {shape}")
    datatype, field = _TYPES[kind]
    count = math.prod(shape)
    if proto.tensor_content:
        content: bytes = proto.tensor_content
        data = _strings(name, content, count) if datatype == BYTES else content
    else:
        data = _values(name, getattr(proto, field), datatype, count, limit)
    return checked(Tensor(name, datatype, shape, data))


def _values(name: str, values: Any, datatype: str, count: int, limit: int) -> bytes:
    """Return typed values; the last one stands for all that are not written out."""
    try:
        raw, last = to_raw(datatype, values), to_raw(datatype, values[-1:])
    except Invalid as error:
        raise Invalid(f"input {name!r}: {error}") from error
    missing = max(0, count - len(values))
    if len(last) * missing > limit:
        raise TooLarge(
            f"input {name!r}: one value stands for {missing} elements, which is over the limit of "
            f"{limit} bytes; send less in one request, or raise the setting max_body_size"
        )
    return raw + last * missing


def _strings(name: str, content: bytes, count: int) -> bytes:
    """Return strings that came as tensor_content: all their lengths, as varints, then the bytes."""
    lengths, at = [], 0
    try:
        for _ in range(count):
            length, shift = 0, 0
            while (byte := content[at]) > 0x7F and shift < _LONGEST_VARINT:
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
            lengths.append(length | byte << shift)
            at += 1
    except IndexError:
        lengths.append(len(content))
    if at + sum(lengths) != len(content):
        raise Invalid(f"input {name!r}: tensor_content does not hold {count} strings")
    parts = []
    for length in lengths:
        parts.append(content[at : at + length])
        at += length
    return to_raw(BYTES, parts)
