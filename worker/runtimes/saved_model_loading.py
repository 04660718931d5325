"""Load the signatures of a SavedModel folder."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from .base import LoadFailed
from .tensorflow_functions import (
    ServingFunction,
    TensorFlowModel,
    UnsupportedTensor,
    argument_order,
    describe,
    flat_call,
    signature_of,
)

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

INIT_SIGNATURE: Final = "__saved_model_init_op"  # TensorFlow's own, not for clients
METHOD_PREFIX: Final = "tensorflow/serving/"
METHODS: Final = ("predict", "classify", "regress")


def load_saved_model(path: Path) -> TensorFlowModel:
    """Load the signatures of a folder. Raises LoadFailed and what TensorFlow raises.

    A signature with a tensor that has no numpy form is left out and logged with the reason.
    """
    graph = _serving_graph(path)
    loaded = tf.saved_model.load(str(path), tags=graph and list(graph.meta_info_def.tags))
    functions = []
    refused = []
    for name, function in loaded.signatures.items():
        if name == INIT_SIGNATURE:
            continue
        try:
            functions.append(_serving_function(name, function, _method(graph, name)))
        except UnsupportedTensor as error:
            logger.warning("signature %s of %s is left out: %s", name, path, error)
            refused.append(f"signature {name}: {error}")
    if not functions:
        raise LoadFailed("bad_model", _no_signature(path, refused))
    return TensorFlowModel(functions, owner=loaded)


def _serving_graph(path: Path) -> Any:
    """Return the metagraph to serve, or None for a text file, where TensorFlow must choose.

    Several metagraphs are rare: TensorFlow 1 saved one for training or for a GPU beside "serve".
    """
    file = path / "saved_model.pb"
    if not file.is_file():
        return None
    saved = saved_model_pb2.SavedModel.FromString(file.read_bytes())
    graphs = sorted(saved.meta_graphs, key=lambda graph: len(graph.meta_info_def.tags))
    for graph in graphs:
        if tf.saved_model.SERVING in graph.meta_info_def.tags:
            return graph
    raise LoadFailed(
        "bad_model",
        f'{path} has no graph with the tag "{tf.saved_model.SERVING}". Export it for serving.',
    )


def _method(graph: Any, name: str) -> str:
    if graph is None or name not in graph.signature_def:
        return "predict"
    method: str = graph.signature_def[name].method_name
    known = method.removeprefix(METHOD_PREFIX)
    return known if known in METHODS else "predict"


def _serving_function(name: str, function: Any, method: str) -> ServingFunction:
    specs: dict[str, Any] = function.structured_input_signature[1]
    results: dict[str, Any] = function.structured_outputs
    names = argument_order(function, specs)
    inputs = [describe(key, specs[key]) for key in names]
    # Flat outputs come in the order in which tf.nest flattens the dict: by name.
    outputs = [describe(key, results[key]) for key in sorted(results)]
    return ServingFunction(
        signature_of(name, inputs, outputs, method),
        tuple(specs[key].dtype for key in names),
        flat_call(function, names),
        function,
    )


def _no_signature(path: Path, refused: list[str]) -> str:
    if refused:
        return f"{path} has no signature that can be served: {'; '.join(refused)}."
    return (
        f"{path} has no signature. Export it with one: `model.export(path)` in Keras, or "
        "`tf.saved_model.save(model, path, signatures=...)`."
    )
