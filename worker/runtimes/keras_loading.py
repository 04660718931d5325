"""Load a Keras file for serving, without the work that only training needs."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import keras
import numpy as np
import tensorflow as tf

from .base import LoadFailed
from .tensorflow_functions import (
    ServingFunction,
    TensorFlowModel,
    UnsupportedTensor,
    describe,
    flat_call,
    signature_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

SIGNATURE: Final = "serving_default"
RANDOM_INITIALIZERS: Final = (
    keras.initializers.VarianceScaling,  # Glorot, He and LeCun are kinds of it
    keras.initializers.RandomNormal,
    keras.initializers.RandomUniform,
    keras.initializers.TruncatedNormal,
    keras.initializers.Orthogonal,
)
HELD_BACK_DTYPES: Final = ("float16", "bfloat16", "float32", "float64")  # that have a NaN


def load_keras(path: Path) -> TensorFlowModel:
    """Load a .keras or .h5 file with safe mode on. Raises LoadFailed and what Keras raises.

    The one signature is named "serving_default". A dict of inputs or outputs keeps its keys;
    otherwise inputs are named by their Input layers and outputs by the layers that make them.
    """
    with random_weights_held_back():
        model = keras.models.load_model(path, compile=False)
    return TensorFlowModel([_serving_function(model, path)], owner=model)


@contextlib.contextmanager
def random_weights_held_back() -> Iterator[None]:
    """Draw random initial weights only for the variables that the file leaves unassigned.

    Keras fills each variable with random numbers and then overwrites them with those of the
    file; for ResNet50 that is a fifth of the time to load. Here a variable starts as NaN, and
    one that is still all NaN at the end gets its initial value after all, so the result is what
    Keras alone gives. `_initialize_with_initializer` is a private name: without it nothing is
    held back.
    """
    variable = keras.Variable
    original: Callable[..., None] | None = getattr(variable, "_initialize_with_initializer", None)
    if original is None or not hasattr(variable, "_initialize"):
        yield
        return
    held: list[tuple[Any, Any]] = []

    def initialize(self: Any, initializer: Any) -> None:
        if isinstance(initializer, RANDOM_INITIALIZERS) and self.dtype in HELD_BACK_DTYPES:
            self._initialize(lambda: tf.fill(self.shape, tf.constant(np.nan, self.dtype)))
            held.append((self, initializer))
        else:
            original(self, initializer)

    variable._initialize_with_initializer = initialize
    try:
        yield
    finally:
        variable._initialize_with_initializer = original
    for each, initializer in held:
        if _is_unassigned(each):
            each.assign(initializer(each.shape, dtype=each.dtype))


def _is_unassigned(variable: Any) -> bool:
    if variable.shape.num_elements() == 0:
        return False
    first = tf.reshape(variable.value, [-1])[0]  # on the device; NaN is rare in a file's weights
    if not np.isnan(first.numpy()):
        return False
    return bool(tf.reduce_all(tf.math.is_nan(variable.value)))


def _serving_function(model: Any, path: Path) -> ServingFunction:
    inputs, outputs = _structures(model, path)
    try:
        names = _names(inputs)
        specs = [_input_spec(tensor) for tensor in keras.tree.flatten(inputs)]
        input_infos = [describe(*pair) for pair in zip(names, specs, strict=True)]
        function = _trace(model, inputs, specs)
        results = function.structured_outputs
        output_infos = [describe(*pair) for pair in zip(_names(outputs), results, strict=True)]
    except UnsupportedTensor as error:
        raise LoadFailed("bad_model", f"{path} cannot be served: {error}.") from error
    signature = signature_of(SIGNATURE, input_infos, output_infos)
    dtypes = tuple(spec.dtype for spec in specs)
    return ServingFunction(signature, dtypes, flat_call(function), function)


def _structures(model: Any, path: Path) -> tuple[Any, Any]:
    """Return the symbolic inputs and outputs, nested as the model takes and gives them."""
    with contextlib.suppress(AttributeError, ValueError):  # a model that was never built
        if isinstance(model, keras.Sequential):
            return model.inputs[0], model.outputs[0]
        return model.input, model.output
    raise LoadFailed(
        "bad_model",
        f"{path} does not say the shape of its inputs. Give the model an Input layer, or call it "
        "once before saving; a model class of your own must be exported as a SavedModel.",
    )


def _names(structure: Any) -> list[str]:
    """Return a distinct name for each tensor of `structure`, in the order of `tree.flatten`."""
    tensors = keras.tree.flatten(structure)
    if isinstance(structure, dict) and len(structure) == len(tensors):
        return [str(key) for key in keras.tree.flatten({key: key for key in structure})]
    names: list[str] = []
    for position, tensor in enumerate(tensors):
        name = _layer_name(tensor) or f"output_{position}"
        used = sum(other == name or other.startswith(f"{name}:") for other in names)
        names.append(f"{name}:{used}" if used else name)  # one layer may give several tensors
    return names


def _layer_name(tensor: Any) -> str | None:
    history = getattr(tensor, "_keras_history", None)
    name = getattr(getattr(history, "operation", None), "name", None)
    return name if isinstance(name, str) else None


def _input_spec(tensor: Any) -> Any:
    for kind in ("sparse", "ragged"):
        if getattr(tensor, kind, False):
            raise UnsupportedTensor(f"input {tensor.name} is {kind}; only dense inputs are served")
    return tf.TensorSpec(tensor.shape, tensor.dtype, name=tensor.name)


def _trace(model: Any, inputs: Any, specs: Sequence[Any]) -> Any:
    """Return the concrete function from the flat inputs to the list of flat outputs."""

    def serve(*tensors: Any) -> list[Any]:
        outputs = model(keras.tree.pack_sequence_as(inputs, tensors), training=False)
        return list(keras.tree.flatten(outputs))

    # Autograph rewrites Python control flow in a user's layers. Here all layers are Keras's own,
    # which need none of it, and the trace is a tenth faster without.
    return tf.function(serve, input_signature=specs, autograph=False).get_concrete_function()
