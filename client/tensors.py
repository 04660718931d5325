"""numpy arrays to and from the V2 protocol with its binary tensor extension.

A body is a JSON header, whose length an HTTP header gives, and then the raw little-endian bytes
of the tensors in their order.
See https://kserve.github.io/website/docs/concepts/architecture/data-plane/v2-protocol
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .errors import InvalidRequest, ModelsupError

try:
    from ml_dtypes import bfloat16 as _bfloat16
except ImportError:  # optional: TensorFlow and JAX bring it along
    _bfloat16 = None

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import numpy.typing as npt

    Array = npt.NDArray[Any]

HEADER_LENGTH: Final = "Inference-Header-Content-Length"

_DATATYPES: Final = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
    "bfloat16": "BF16",
    "string": "BYTES",
}
_FLOATS: Final = {"float16", "float32", "float64"}
_DTYPES: Final = {datatype: name for name, datatype in _DATATYPES.items()}


def encode(inputs: Mapping[str, Array], signature: str | None) -> tuple[bytes, int]:
    """Return a request body and the length of its JSON header in bytes.

    The answer is asked for in binary too. Raises InvalidRequest for an array that has no V2 type.
    """
    tensors, parts = [], []
    for name, array in inputs.items():
        datatype = _datatype(name, array)
        raw = _packed(array) if datatype == "BYTES" else _little(array).tobytes()
        tensors.append(
            {
                "name": name,
                "shape": list(array.shape),
                "datatype": datatype,
                "parameters": {"binary_data_size": len(raw)},
            }
        )
        parts.append(raw)
    parameters: dict[str, Any] = {"binary_data_output": True}
    if signature is not None:
        parameters["signature_name"] = signature
    header = json.dumps({"inputs": tensors, "parameters": parameters}).encode()
    return b"".join([header, *parts]), len(header)


def decode_outputs(header: dict[str, Any], raw: memoryview) -> dict[str, Array]:
    """Return the outputs of an answer: its parsed JSON, and the bytes after that.

    A "string" tensor becomes an object array of bytes. Arrays are copies and may be written to.
    Raises ModelsupError where the answer contradicts itself.
    """
    try:
        arrays, offset = {}, 0
        for tensor in header["outputs"]:
            size = tensor.get("parameters", {}).get("binary_data_size")
            if size is None:
                flat = _from_list(tensor["datatype"], tensor["data"])
            else:
                flat = _from_bytes(tensor["datatype"], raw[offset : offset + size])
                offset += size
            arrays[tensor["name"]] = flat.reshape(tensor["shape"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelsupError(
            f"the answer to the prediction is not a V2 one: {error!r}", code="bad_answer"
        ) from error
    return arrays


def numpy_name(datatype: str) -> str:
    """Return numpy's name of a V2 datatype, "string" for BYTES. Raises ModelsupError."""
    if datatype in _DTYPES:
        return _DTYPES[datatype]
    raise ModelsupError(f"{datatype!r} is not a V2 datatype", code="bad_answer")


def as_array(name: str, value: object) -> Array:
    """Return what numpy makes of `value`. Raises InvalidRequest, which names the input."""
    try:
        return np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise _unusable(name, f"cannot be made an array: {error}") from error


def narrowed(array: Array, dtype: str) -> Array:
    """Return numbers in the float type `dtype` of the model, to send no more than it takes.

    Whatever would change by more than its last digits stays as it is: the worker says what is
    wrong with it.
    """
    if dtype not in _FLOATS or array.dtype.kind not in "iuf":
        return array
    with np.errstate(over="ignore"):
        cast = array.astype(dtype)
    return cast if np.array_equal(np.isfinite(cast), np.isfinite(array)) else array


def _unusable(name: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"input {name!r} {problem}", code="invalid")


def _datatype(name: str, array: Array) -> str:
    kind = "string" if array.dtype.kind in "OSU" else array.dtype.name
    if kind in _DATATYPES:
        return _DATATYPES[kind]
    raise _unusable(name, f"has {array.dtype} values, which the V2 protocol cannot carry")


def _little(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _packed(array: Array) -> bytes:
    """Each element: its length in 4 bytes, little-endian, then its bytes."""
    texts = (_as_bytes(item) for item in array.ravel())
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _as_bytes(item: object) -> bytes:
    return item if isinstance(item, bytes) else str(item).encode()


def _unpacked(raw: memoryview) -> Iterator[bytes]:
    start = 0
    while start < len(raw):
        end = start + 4 + int.from_bytes(raw[start : start + 4], "little")
        if end > len(raw):
            raise ValueError("a BYTES tensor ends in the middle of an element")
        yield bytes(raw[start + 4 : end])
        start = end


def _objects(items: list[bytes]) -> Array:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


def _from_bytes(datatype: str, raw: memoryview) -> Array:
    if datatype == "BYTES":
        return _objects(list(_unpacked(raw)))
    if datatype == "BF16":
        return _from_bfloat16(np.frombuffer(raw, dtype="<u2"))
    name = numpy_name(datatype)
    return np.frombuffer(raw, dtype=np.dtype(name).newbyteorder("<")).astype(name)


def _from_bfloat16(bits: npt.NDArray[np.uint16]) -> Array:
    """Return bfloat16 where numpy has been taught it, else float32, which holds every value."""
    if _bfloat16 is not None:
        return bits.astype(np.uint16).view(_bfloat16)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _from_list(datatype: str, data: Any) -> Array:
    if datatype == "BYTES":
        return _objects([_as_bytes(item) for item in np.asarray(data, dtype=object).ravel()])
    name = "float32" if datatype == "BF16" else numpy_name(datatype)
    return np.asarray(data, dtype=name).ravel()
