"""Compute once what does not depend on the inputs, and move large constants out of the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from . import private_tensorflow
from .prepared_freezing import CannotFreeze, FrozenGraph
from .prepared_weights import MAPPED

if TYPE_CHECKING:
    from collections.abc import Iterator

# Batch normalisation becomes part of the weights before it, and what remains is fused for the
# CPU. A second round of folding computes what the others have made constant.
PASSES: Final = ("pruning", "constfold", "arithmetic", "dependency")
FUSION: Final = ("remap", "constfold")
FEWEST_BYTES: Final = 4096  # of a constant that is moved: each costs time in every call
MOST_BYTES: Final = 2**30  # of a graph: protobuf ends at 2 GiB

# Stateful by their definition, but nothing of it outlives the call; what those that call functions
# do is seen by looking into the functions.
HARMLESS: Final = (
    "Assert",
    "TensorArray",
    "Stack",
    "StatefulPartitionedCall",
    "While",
    "If",
    "Case",
)
DRAWS: Final = ("Random", "Multinomial", "ParameterizedTruncatedNormal", "StatefulRandom")


def fold(frozen: FrozenGraph, *, for_gpu: bool) -> FrozenGraph:
    """Return a graph that computes the same with less. Raises CannotFreeze.

    For a GPU nothing is fused yet: TensorFlow does it for the device that it finds.
    """
    passes = PASSES if for_gpu else (*PASSES, *FUSION)
    kept = [*frozen.inputs, *frozen.outputs, *(f"{name}:0" for name in frozen.weights)]
    graph = private_tensorflow.optimize(frozen.graph, kept, passes)
    for node in _all_nodes(graph):
        _check(node)
    return FrozenGraph(graph, frozen.inputs, frozen.outputs, dict(frozen.weights))


def _all_nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _check(node: Any) -> None:
    if node.op.startswith(HARMLESS) or not private_tensorflow.is_stateful(node.op):
        return
    if node.op.startswith(DRAWS):
        raise CannotFreeze(f"draws random numbers ({node.op})")
    raise CannotFreeze(f"keeps or changes something outside of the call ({node.op})")


def split(frozen: FrozenGraph, most_bytes: int = MOST_BYTES) -> FrozenGraph:
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
    if graph.ByteSize() > most_bytes:
        raise CannotFreeze(f"has a graph of {graph.ByteSize()} bytes beside its weights")
    return FrozenGraph(graph, frozen.inputs, frozen.outputs, weights)


def _is_large(node: Any) -> bool:
    if node.op != "Const" or node.input:  # an input ties it to the round of a loop
        return False
    tensor = node.attr["value"].tensor
    dtype = tf.as_dtype(tensor.dtype)
    elements = tf.TensorShape(tensor.tensor_shape).num_elements()
    return dtype.name in MAPPED and elements * dtype.size >= FEWEST_BYTES
