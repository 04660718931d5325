"""Compute once what does not depend on the inputs, and move large constants out of the graph."""

from __future__ import annotations

from typing import Any, Final

import tensorflow as tf

from . import private_tensorflow
from .prepared_freezing import CannotFreeze, FrozenGraph, all_nodes, types_of
from .prepared_weights import MAPPED

# Batch normalisation becomes part of the weights before it, and what remains is fused for the
# CPU. A second round of folding computes what the others have made constant.
PASSES: Final = ("pruning", "constfold", "arithmetic", "dependency")
FUSION: Final = ("remap", "constfold")
FEWEST_BYTES: Final = 4096  # of a constant that is moved: each costs time in every call
MOST_BYTES: Final = 2**30  # of a graph: protobuf ends at 2 GiB

CPU: Final = "/job:localhost/replica:0/task:0/device:CPU:0"

LOOPS: Final = ("Enter", "While", "StatelessWhile")
# Stateful by their definition, but nothing of it outlives the call; what those that call functions
# do is seen by looking into the functions.
CALLS: Final = ("StatefulPartitionedCall", "While", "If", "Case")
HARMLESS: Final = ("Assert", "TensorArray", "Stack", *CALLS)
DRAWS: Final = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "StatefulRandom")


def fold(frozen: FrozenGraph, *, for_gpu: bool) -> FrozenGraph:
    """Return a graph that computes the same with less. Raises CannotFreeze.

    For a GPU nothing is fused yet: TensorFlow does it for the device that it finds. A loop is
    refused there: recurrent layers have one, and cuDNN, which a load on the GPU takes, has not.
    With bfloat16 nothing is fused either, for a graph may not name such operations by itself.
    """
    kept = [*frozen.inputs, *frozen.outputs, *(f"{name}:0" for name in frozen.weights)]
    if for_gpu or tf.bfloat16.as_datatype_enum in types_of(frozen.graph):
        graph = private_tensorflow.optimize(frozen.graph, kept, PASSES)
    else:
        _put_on(frozen.graph, CPU)  # grappler fuses only what it knows the place of
        graph = private_tensorflow.optimize(frozen.graph, kept, (*PASSES, *FUSION))
        _put_on(graph, "")
    for node in all_nodes(graph):
        _check(node, for_gpu=for_gpu)
    return FrozenGraph(graph, frozen.inputs, frozen.outputs, dict(frozen.weights))


def _put_on(graph: Any, device: str) -> None:
    for node in all_nodes(graph):
        node.device = device


def _check(node: Any, *, for_gpu: bool) -> None:
    if for_gpu and node.op in LOOPS:
        raise CannotFreeze("goes step by step, for which Keras has a faster way on a GPU")
    if node.op.startswith(HARMLESS) or not private_tensorflow.is_stateful(node.op):
        return
    if node.op.startswith(DRAWS):
        raise CannotFreeze(f"draws random numbers ({node.op})")
    raise CannotFreeze(f"keeps or changes something outside of the call ({node.op})")


def split(frozen: FrozenGraph) -> FrozenGraph:
    """Return the graph with each large constant as a weight. Raises CannotFreeze.

    A constant inside of a loop stays: what comes from outside would have to be handed in.
    """
    graph = tf.compat.v1.GraphDef(versions=frozen.graph.versions, library=frozen.graph.library)
    weights = dict(frozen.weights)
    for node in frozen.graph.node:
        added = graph.node.add()
        if not _is_large(node):
            added.CopyFrom(node)
            continue
        value = tf.make_ndarray(node.attr["value"].tensor)
        weights[node.name] = value
        added.name, added.op, added.device = node.name, "Placeholder", node.device
        added.attr["dtype"].CopyFrom(node.attr["dtype"])
        added.attr["shape"].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
    if graph.ByteSize() > MOST_BYTES:
        raise CannotFreeze(f"has a graph of {graph.ByteSize()} bytes beside its weights")
    return FrozenGraph(graph, frozen.inputs, frozen.outputs, weights)


def _is_large(node: Any) -> bool:
    if node.op != "Const" or node.input:  # an input ties it to the round of a loop
        return False
    tensor = node.attr["value"].tensor
    dtype = tf.as_dtype(tensor.dtype)
    elements = tf.TensorShape(tensor.tensor_shape).num_elements()
    return dtype.name in MAPPED and elements * dtype.size >= FEWEST_BYTES
