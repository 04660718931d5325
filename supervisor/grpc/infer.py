"""V2's infer messages to the form of workers and back. Pure: no calls, no state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ..errors import Invalid
from .schema import read_schema
from .tensors import BYTES, DATATYPES, TYPECODES, fill, to_raw
from .worker_body import Tensor, checked, encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .worker_body import Answer

SCHEMA: Final = read_schema("inference.proto")

_CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}


def to_worker(request: Any) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body for a worker of a ModelInferRequest. Raises Invalid."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise Invalid(
            f"raw_input_contents has {len(raw)} entries for {len(request.inputs)} inputs; "
            "send one for each input, in their order"
        )
    inputs = [
        checked(
            Tensor(
                entry.name,
                entry.datatype,
                list(entry.shape),
                _raw_data(entry, raw[number]) if raw else _typed_data(entry),
                _parameters(entry.parameters),
            )
        )
        for number, entry in enumerate(request.inputs)
    ]
    outputs = [
        {"name": entry.name, "parameters": _parameters(entry.parameters) | {"binary_data": True}}
        for entry in request.outputs
    ]
    return encode(inputs, outputs, _parameters(request.parameters), request.id)


def from_worker(request: Any, answer: Answer) -> Any:
    """Return the ModelInferResponse. Tensors are raw or typed, as those of the request were.

    All are raw where one has a type that has no typed form.
    """
    response = SCHEMA.messages.ModelInferResponse(
        model_name=answer.model, model_version=answer.version, id=answer.identity
    )
    is_typed = not request.raw_input_contents and any(
        entry.HasField("contents") for entry in request.inputs
    )
    is_typed = is_typed and all(tensor.datatype in _CONTENTS for tensor in answer.outputs)
    for tensor in answer.outputs:
        entry = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        if is_typed:
            fill(entry.contents, _CONTENTS[tensor.datatype], tensor.datatype, tensor.data)
        else:
            response.raw_output_contents.append(bytes(tensor.data))
    return response


def _raw_data(entry: Any, raw: bytes) -> bytes:
    if entry.HasField("contents"):
        raise Invalid(
            f"input {entry.name!r} has contents beside raw_input_contents; send one of the two"
        )
    return raw


def _typed_data(entry: Any) -> bytes:
    field = _CONTENTS.get(entry.datatype)
    if field is None:
        if entry.datatype in TYPECODES:
            raise Invalid(
                f"input {entry.name!r}: {entry.datatype} has no contents of its own; "
                "send it in raw_input_contents"
            )
        raise Invalid(
            f"input {entry.name!r}: datatype {entry.datatype!r} is none of {', '.join(DATATYPES)}"
        )
    given = [described.name for described, _ in entry.contents.ListFields()]
    if given not in ([], [field]):
        raise Invalid(
            f"input {entry.name!r}: {entry.datatype} belongs in {field}, not {', '.join(given)}"
        )
    try:
        return to_raw(entry.datatype, getattr(entry.contents, field))
    except Invalid as error:
        raise Invalid(f"input {entry.name!r}: {error}") from error


def _parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in parameters.items():
        choice = value.WhichOneof("parameter_choice")
        found[name] = None if choice is None else getattr(value, choice)
    return found
