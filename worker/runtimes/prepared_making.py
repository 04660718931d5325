"""Make the prepared form of a loaded TensorFlow model: freeze, fold, split, write, verify."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import tensorflow as tf

from . import prepared_loading, private_tensorflow
from .base import NotPreparable
from .prepared_folding import fold, split
from .prepared_freezing import CannotFreeze, FrozenGraph, freeze
from .prepared_layout import FUNCTIONS, WEIGHTS, Function, Index, digest_of, write_index
from .prepared_verifying import verify
from .prepared_weights import WeightsWriter

if TYPE_CHECKING:
    from pathlib import Path

    from .tensorflow_functions import ServingFunction, TensorFlowModel


def make(model: TensorFlowModel, folder: Path, *, for_gpu: bool) -> None:
    """Write the prepared form of `model` into an empty folder, load it, and compare the answers.

    Raises NotPreparable and OSError.
    """
    private_tensorflow.probe(private_tensorflow.FOR_PREPARING)
    with (folder / WEIGHTS).open("wb") as stream:
        writer = WeightsWriter(stream)
        library = tf.compat.v1.GraphDef()
        functions = tuple(
            _add(function, writer, library, for_gpu=for_gpu) for function in model.functions
        )
    definitions = library.SerializeToString()
    (folder / FUNCTIONS).write_bytes(definitions)
    index = Index(
        made_by=private_tensorflow.identity(),
        device="gpu" if for_gpu else "cpu",
        functions_digest=digest_of(definitions),
        weights_bytes=(folder / WEIGHTS).stat().st_size,
        functions=functions,
        weights=tuple(writer.weights),
    )
    write_index(folder, index)
    verify(model, prepared_loading.load(folder, on_gpu=False))


def _add(
    serving: ServingFunction, writer: WeightsWriter, library: Any, *, for_gpu: bool
) -> Function:
    """Write the weights of one signature and add its function to the library of a GraphDef."""
    signature = serving.signature
    try:
        frozen = freeze(serving.function, len(signature.inputs))
        folded = split(fold(frozen, for_gpu=for_gpu))
    except CannotFreeze as error:
        raise NotPreparable(f"Signature {signature.name} {error}.") from error
    positions = [
        writer.add(tf.as_dtype(value.dtype).name, value) for name, value in folded.weights.items()
    ]
    definition = _function_of(folded)
    known = {function.signature.name for function in library.library.function}
    for function in (*folded.graph.library.function, definition):
        if function.signature.name not in known:
            library.library.function.add().CopyFrom(function)
    return Function(signature, definition.signature.name, tuple(positions))


def _function_of(frozen: FrozenGraph) -> Any:
    """Return the FunctionDef that takes the inputs and then the weights of a graph.

    It is named by what it does, so that two models in one process cannot collide.
    """
    wrapped = tf.compat.v1.wrap_function(
        lambda: tf.graph_util.import_graph_def(frozen.graph, name=""), []
    )
    tensor = wrapped.graph.get_tensor_by_name
    arguments = [*frozen.inputs, *(f"{name}:0" for name in frozen.weights)]
    pruned = wrapped.prune([tensor(name) for name in arguments], [*map(tensor, frozen.outputs)])
    definition = type(pruned.function_def)()
    definition.CopyFrom(pruned.function_def)
    definition.signature.name = ""
    digest = hashlib.sha256(definition.SerializeToString(deterministic=True))
    definition.signature.name = f"prepared_{digest.hexdigest()[:32]}"
    return definition
