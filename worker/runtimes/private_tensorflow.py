"""The names of TensorFlow that are private and that prepared models cannot do without.

Nothing else in the worker may use them. Each is looked up when it is needed; where a release of
TensorFlow has moved or dropped one, the message says which, and the model is loaded without its
prepared form.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Final

import tensorflow as tf

from ..contract import PREPARED_FORMAT
from .base import NotPreparable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTEXT: Final = "tensorflow.python.eager.context:context"
EXECUTE: Final = "tensorflow.python.eager.execute:execute"
OPTIMIZE: Final = "tensorflow.python.grappler.tf_optimizer:OptimizeGraph"
OP_DEFINITION: Final = "tensorflow.python.framework.op_def_registry:get"

ONEDNN: Final = "TF_ENABLE_ONEDNN_OPTS"  # public, and read when TensorFlow is imported

FOR_LOADING: Final = (CONTEXT, EXECUTE)
FOR_PREPARING: Final = (*FOR_LOADING, OPTIMIZE, OP_DEFINITION)


def find(place: str) -> Callable[..., Any]:
    """Return what is at "module:name". Raises NotPreparable."""
    module, _, name = place.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise NotPreparable(
            f"TensorFlow {tf.__version__} has no {module}.{name}, which a prepared model needs."
        ) from error
    return found


def probe(places: Sequence[str]) -> None:
    """Check that all of these are there. Raises NotPreparable."""
    for place in places:
        find(place)
    if not hasattr(find(CONTEXT)(), "add_function_def"):
        raise NotPreparable(
            f"The context of TensorFlow {tf.__version__} has no add_function_def, "
            "which a prepared model needs."
        )


def identity() -> str:
    """Return what a form must have been made by, for this process to load it.

    Without oneDNN there are fewer fused operations.
    """
    one_dnn = os.environ.get(ONEDNN, "default")
    return f"TensorFlow {tf.__version__} with oneDNN={one_dnn} in format {PREPARED_FORMAT}"


def optimize(graph: Any, keep: Sequence[str], passes: Sequence[str]) -> Any:
    """Return the GraphDef that the named passes of grappler make of `graph`.

    `keep` names the nodes or tensors that must stay as they are called. Grappler counts on the
    devices of this process.
    """
    config = tf.compat.v1.ConfigProto()
    rewriting = config.graph_options.rewrite_options
    rewriting.optimizers.extend(passes)
    rewriting.min_graph_nodes = -1  # else small graphs are left alone
    rewriting.meta_optimizer_iterations = rewriting.TWO
    meta = tf.compat.v1.MetaGraphDef()
    meta.graph_def.CopyFrom(graph)
    meta.collection_def["train_op"].node_list.value.extend(keep)
    return find(OPTIMIZE)(config, meta)


def is_stateful(operation: str) -> bool:
    """Say whether an operation keeps or changes something from call to call.

    An unknown name, such as that of a function, does not.
    """
    definition = find(OP_DEFINITION)(operation)
    return definition is not None and bool(definition.is_stateful)


def add_functions(functions: Sequence[Any]) -> None:
    """Make FunctionDefs callable in this process."""
    context = find(CONTEXT)()
    for function in functions:
        context.add_function_def(function)


def caller(function: str, outputs: int, configuration: bytes) -> Callable[[Sequence[Any]], Any]:
    """Return what calls an added function with a flat list of tensors.

    `configuration` is a serialised ConfigProto, which counts when the function is called first.
    """
    execute = find(EXECUTE)
    context = find(CONTEXT)()
    name = function.encode()
    attributes = ("executor_type", "", "config_proto", configuration)
    return lambda tensors: execute(name, outputs, tensors, attributes, context)
