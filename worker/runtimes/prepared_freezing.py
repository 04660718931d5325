"""Turn a function that reads variables into a graph in which they are constants.

TensorFlow inlines all function calls first; then each variable is followed from where it comes in
to the operations that read it, and these are replaced by ones that take its value.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorflow as tf

from . import private_tensorflow

if TYPE_CHECKING:
    from collections.abc import Iterator

# A protobuf message ends at 2 GiB, and folding may hold a constant twice.
MOST_IN_A_GRAPH: Final = 768 * 2**20  # bytes of constants

# What hands a tensor on, also into and out of a loop or a branch.
HANDS_ON: Final = frozenset(
    ("Identity", "Enter", "Exit", "Merge", "NextIteration", "Switch", "StopGradient")
)
WRITES: Final = ("Assign", "ResourceScatter", "ScatterNd", "ResourceApply", "ResourceStridedSlice")


class CannotFreeze(Exception):
    """Why not. The message goes on after the name of the signature: "changes a variable"."""


@dataclass(slots=True)
class FrozenGraph:
    """A graph without variables. Tensor names are those of the GraphDef, such as "x:0".

    `weights` are placeholders of the graph, by node name, and the values to feed them with.
    """

    graph: Any  # GraphDef
    inputs: list[str]
    outputs: list[str]
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)


def all_nodes(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a GraphDef, and those of the functions in it."""
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def types_of(graph: Any) -> set[int]:
    """Return TensorFlow's numbers of the data types in a GraphDef."""
    return {attribute.type for node in all_nodes(graph) for attribute in node.attr.values()}


def freeze(function: Any, inputs: int) -> FrozenGraph:
    """Return the graph of a concrete function whose first `inputs` arguments are a signature's.

    The largest weights stay placeholders where the graph would pass MOST_IN_A_GRAPH bytes.
    Raises CannotFreeze.
    """
    captured = dict(_captured(function, inputs))
    names = [tensor.name for tensor in function.inputs[:inputs]]
    outputs = [tensor.name for tensor in function.outputs]
    kept = [*names, *outputs, *(f"{name}:0" for name in captured)]
    graph = private_tensorflow.optimize(function.graph.as_graph_def(), kept, ["function"])
    frozen = FrozenGraph(graph, names, outputs)
    nodes = {node.name: node for node in graph.node}
    readers = _readers(graph)
    values = {name: np.asarray(value) for name, value in captured.items()}
    apart = _largest(values, MOST_IN_A_GRAPH)
    for name, value in values.items():
        node = nodes[name]
        if node.attr["dtype"].type == tf.resource.as_datatype_enum:
            _read_by_value(node, value, readers)
        _hold(node, value, as_constant=name not in apart)
        if name in apart:
            frozen.weights[name] = value
    return frozen


def _captured(function: Any, inputs: int) -> Iterator[tuple[str, Any]]:
    """Yield what a function takes besides its inputs: the name of the node, and the value."""
    graph = function.graph
    if len(function.inputs) - inputs != len(graph.captures) or graph.deferred_external_captures:
        raise CannotFreeze("takes values that are only known when it is called")
    variables = {id(variable.handle): variable for variable in graph.variables}
    for outer, inner in graph.captures:
        if outer.dtype == tf.variant:
            raise CannotFreeze(f"uses {inner.op.name}, which is neither numbers nor text")
        if outer.dtype != tf.resource:
            yield inner.op.name, outer.numpy()
        elif id(outer) in variables:
            yield inner.op.name, variables[id(outer)].numpy()
        else:
            raise CannotFreeze(_not_a_variable(graph, inner))


def _not_a_variable(graph: Any, tensor: Any) -> str:
    uses = {operation.type for operation in tensor.consumers()}
    for function in graph.as_graph_def().library.function:
        uses.update(node.op for node in function.node_def)
    if any("LookupTable" in use for use in uses):
        return "looks something up in a table, which is not part of the graph"
    return f"uses {tensor.op.name}, a resource that is not a variable"


def _largest(values: dict[str, np.ndarray[Any, Any]], most: int) -> set[str]:
    """Return the names of the largest values, so many that the others stay within `most` bytes."""
    total = sum(value.nbytes for value in values.values())
    found = set()
    for name, value in sorted(values.items(), key=lambda item: -item[1].nbytes):
        if total <= most:
            break
        found.add(name)
        total -= value.nbytes
    return found


def _readers(graph: Any) -> dict[str, list[Any]]:
    """Return the nodes that take an output of each node, by its name."""
    readers: dict[str, list[Any]] = {}
    for node in graph.node:
        for tensor in node.input:
            if not tensor.startswith("^"):
                readers.setdefault(tensor.partition(":")[0], []).append(node)
    return readers


def _read_by_value(source: Any, value: np.ndarray[Any, Any], readers: dict[str, list[Any]]) -> None:
    """Make all that takes the variable at `source` take its value. Raises CannotFreeze."""
    dtype = tf.as_dtype(value.dtype).as_datatype_enum
    queue = deque([source])
    seen = {source.name}
    while queue:
        for node in readers.get(queue.popleft().name, ()):
            if node.name in seen:
                continue
            seen.add(node.name)
            if node.op in HANDS_ON:
                node.attr["T"].type = dtype
                queue.append(node)
            else:
                _take_value(node, dtype)


def _take_value(node: Any, dtype: int) -> None:
    """Turn a node that reads a variable into one that reads a tensor."""
    if node.op == "ReadVariableOp":
        _become(node, "Identity", T=dtype)
    elif node.op == "ResourceGather" and not node.attr["batch_dims"].i:
        # `Gather` has no input for the axis, which would have to be made inside of loops too.
        _become(node, "Gather", Tparams=dtype, Tindices=node.attr["Tindices"].type)
    elif node.op == "ResourceGatherNd":
        _become(node, "GatherNd", Tparams=dtype, Tindices=node.attr["Tindices"].type)
    elif node.op == "VariableShape":
        out = node.attr["out_type"].type or tf.int32.as_datatype_enum
        _become(node, "Shape", T=dtype, out_type=out)
    elif node.op.startswith(WRITES):
        raise CannotFreeze(f"changes a variable when it is called ({node.op})")
    else:
        raise CannotFreeze(f"does with a variable more than to read it ({node.op})")


def _become(node: Any, operation: str, **types: int) -> None:
    node.op = operation
    node.attr.clear()
    for name, dtype in types.items():
        node.attr[name].type = dtype


def _hold(node: Any, value: np.ndarray[Any, Any], *, as_constant: bool) -> None:
    """Make a placeholder of a variable one of its value, or the constant itself."""
    node.attr.clear()
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    if as_constant:
        node.op = "Const"
        node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))
    else:
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(value.shape).as_proto())
