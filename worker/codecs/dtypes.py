"""The tensor types that requests can carry: their names in signatures, in V2 and in numpy."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any, Final, Literal

import numpy as np

from .base import BadInput

Family = Literal["bool", "integer", "float", "bytes"]

STRING: Final = "string"  # a signature's name for bytes objects

V2_DATATYPES: Final = {
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
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    STRING: "BYTES",
}
NAMES_BY_DATATYPE: Final = {datatype: name for name, datatype in V2_DATATYPES.items()}


@lru_cache(maxsize=64)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return numpy's type for a signature's type name; objects for "string".

    Raises BadInput on a type that requests cannot carry, such as complex64, and on bfloat16
    where the package `ml_dtypes` is absent.
    """
    if name not in V2_DATATYPES:
        raise BadInput(f"tensors of type {name} cannot travel in a request or an answer")
    if name == STRING:
        return np.dtype(object)
    if name == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")  # teaches numpy the type
        except ImportError:
            raise BadInput("bfloat16 (BF16) needs the package ml_dtypes in the worker") from None
    return np.dtype(name)


@lru_cache(maxsize=64)
def name_of(dtype: np.dtype[Any]) -> str:
    """Return the signature name of a numpy type: "string" for objects, bytes and text."""
    return STRING if dtype.kind in "OSU" else dtype.name


def family(dtype: np.dtype[Any]) -> Family:
    """Return which kind of value a type of `V2_DATATYPES` holds."""
    if dtype.kind == "b":
        return "bool"
    if dtype.kind in "iu":
        return "integer"
    return "bytes" if dtype.kind in "OSU" else "float"
