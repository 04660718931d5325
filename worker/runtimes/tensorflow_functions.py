"""Call a concrete function of TensorFlow with numpy arrays, at the least cost per call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ..contract import Signature, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from .base import Arrays

    Flat = Callable[[Sequence[Any]], Sequence[Any]]  # tensors in, tensors out


class UnsupportedTensor(Exception):
    """A tensor that has no numpy form. The message says which and why."""


@dataclass(frozen=True, slots=True)
class ServingFunction:
    """One signature, with the flat function that computes it.

    The tensors that `run` takes and gives are in the order of the signature. `function` is the
    concrete function behind it; a prepared model has none.
    """

    signature: Signature
    dtypes: tuple[Any, ...]  # TensorFlow's, of the inputs
    run: Flat
    function: Any = None

    def __call__(self, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Return the outputs by name. "string" tensors are object arrays of bytes."""
        tensors = [
            tf.constant(inputs[info.name], dtype)
            for info, dtype in zip(self.signature.inputs, self.dtypes, strict=True)
        ]
        outputs = self.run(tensors)
        return {
            info.name: _to_array(tensor)
            for info, tensor in zip(self.signature.outputs, outputs, strict=True)
        }


class TensorFlowModel:
    """A loaded model. It keeps `owner`, whose variables the functions only refer to, alive."""

    def __init__(self, functions: Sequence[ServingFunction], owner: object) -> None:
        self._functions = {function.signature.name: function for function in functions}
        self._owner = owner

    @property
    def functions(self) -> Collection[ServingFunction]:
        """The callables, with TensorFlow's functions."""
        return self._functions.values()

    @property
    def signatures(self) -> Mapping[str, Signature]:
        """The callables by name."""
        return {name: function.signature for name, function in self._functions.items()}

    def call(self, signature: str, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Run one signature. Raises KeyError on an unknown one, else what TensorFlow raises."""
        return self._functions[signature](inputs)


def describe(name: str, spec: Any) -> TensorInfo:
    """Return the contract's form of a tensor or tensor spec. Raises UnsupportedTensor."""
    if not isinstance(spec, tf.Tensor | tf.TensorSpec):
        kind = type(spec).__name__.removesuffix("Spec")
        raise UnsupportedTensor(f"tensor {name} is a {kind}; only dense tensors can be served")
    if spec.dtype in (tf.resource, tf.variant) or spec.dtype.is_quantized:
        raise UnsupportedTensor(f"tensor {name} is of type {spec.dtype.name}, not numbers or text")
    shape = None if spec.shape.rank is None else tuple(spec.shape.as_list())
    return TensorInfo(name, spec.dtype.name, shape)


def signature_of(
    name: str,
    inputs: Sequence[TensorInfo],
    outputs: Sequence[TensorInfo],
    method: str = "predict",
) -> Signature:
    """Return a signature; it is batchable when each tensor's first dimension is free."""
    batchable = bool(inputs) and all(_free_first(info) for info in (*inputs, *outputs))
    return Signature(name, tuple(inputs), tuple(outputs), batchable, method)


def argument_order(function: Any, names: Iterable[str]) -> list[str]:
    """Return the input names of a SavedModel's signature in the order of its flat arguments."""
    order = getattr(function, "_arg_keywords", None)
    return list(order) if order is not None and set(order) == set(names) else list(names)


def flat_call(function: Any, names: Sequence[str] | None = None) -> Flat:
    """Return the cheapest way to call a concrete function with a flat list of its arguments.

    The public call checks and flattens its arguments each time, about 80 us, a third of the
    whole call of a small model. The way around it has no public name, so it is taken only where
    everything looks as expected; otherwise the public call is the fallback, by keyword where
    `names` are given. Outputs are in the order of
    `tf.nest.flatten(function.structured_outputs)` either way.
    """
    direct = getattr(getattr(function, "_inference_function", None), "call_flat", None)
    captures = getattr(function, "_captured_inputs", None)
    if direct is None or captures is None or not _is_plain(function, captures, names):
        return lambda tensors: _public_call(function, names, tensors)
    captured = tuple(function.captured_inputs)
    return lambda tensors: direct(*tensors, *captured)


def _is_plain(function: Any, captures: Sequence[Any], names: Sequence[str] | None) -> bool:
    """Say whether the flat arguments are the named inputs, then captures known by now."""
    if any(callable(tensor) for tensor in captures):
        return False
    if names is None:
        return True
    arguments = len(function.inputs) - len(captures)
    return arguments == len(names) and list(names) == getattr(function, "_arg_keywords", None)


def _public_call(function: Any, names: Sequence[str] | None, tensors: Sequence[Any]) -> list[Any]:
    if names is None:
        outputs = function(*tensors)
    else:
        outputs = function(**dict(zip(names, tensors, strict=True)))
    return list(tf.nest.flatten(outputs))


def _free_first(info: TensorInfo) -> bool:
    return info.shape is not None and len(info.shape) > 0 and info.shape[0] is None


def _to_array(tensor: Any) -> np.ndarray[Any, Any]:
    value = tensor.numpy()
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, bytes):  # a scalar string; numpy would cut trailing zero bytes
        return np.array(value, dtype=object)
    return np.asarray(value)
