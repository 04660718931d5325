"""Load the prepared form of a TensorFlow model. Needs no Keras."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from . import private_tensorflow
from .base import NotPreparable
from .prepared_layout import read_functions, read_index
from .prepared_weights import map_weights
from .tensorflow_functions import ServingFunction, TensorFlowModel

if TYPE_CHECKING:
    from pathlib import Path

    from .prepared_layout import Function

GPU: Final = "/device:GPU:0"


def load(folder: Path, *, on_gpu: bool) -> TensorFlowModel:
    """Return the model that was prepared into `folder`.

    On a GPU its weights are copied there; else they stay pages of the file. Raises NotPreparable
    for another TensorFlow or device than it was made for, OSError, and ValueError on files that
    are damaged. What is damaged inside of the weights is not noticed.
    """
    private_tensorflow.probe(private_tensorflow.FOR_LOADING)
    index = read_index(folder)
    this = private_tensorflow.identity()
    if index.made_by != this:
        raise NotPreparable(f"It was prepared by {index.made_by}, and this is {this}.")
    if on_gpu and index.device != "gpu":
        raise NotPreparable(f"It was prepared for a {index.device}, and this is a gpu.")
    graph = tf.compat.v1.GraphDef.FromString(read_functions(folder, index))
    weights = map_weights(folder, index.weights, index.weights_bytes)
    if on_gpu:
        with tf.device(GPU):
            weights = [tf.identity(weight) for weight in weights]
    private_tensorflow.add_functions(graph.library.function)
    return TensorFlowModel(
        [_serving_function(function, weights, on_gpu=on_gpu) for function in index.functions],
        owner=weights,
    )


def _serving_function(function: Function, weights: list[Any], *, on_gpu: bool) -> ServingFunction:
    signature = function.signature
    own = [weights[position] for position in function.weights]
    call = private_tensorflow.caller(
        function.name, len(signature.outputs), _configuration(on_gpu=on_gpu)
    )
    return ServingFunction(
        signature,
        tuple(tf.as_dtype(info.dtype) for info in signature.inputs),
        lambda tensors: call([*tensors, *own]),
    )


def _configuration(*, on_gpu: bool) -> bytes:
    """Return what to do at the first call: nothing on the CPU, for which all was done before."""
    config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
    config.graph_options.rewrite_options.disable_meta_optimizer = not on_gpu
    return bytes(config.SerializeToString())
