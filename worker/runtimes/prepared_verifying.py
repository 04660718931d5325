"""Ask a model and its prepared form the same questions, and compare the answers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import tensorflow as tf

from .base import NotPreparable
from .prepared_freezing import types_of
from .prepared_questions import BATCHES, SIZES, question

if TYPE_CHECKING:
    from ..contract import Signature
    from .base import Array, Arrays, Model
    from .tensorflow_functions import TensorFlowModel

REFUSALS: Final = (tf.errors.OpError, ValueError)  # what a model raises on inputs it cannot take

# How far an answer may be off, relative to the largest number of its tensor. Folding changes the
# order of additions, so the last bits differ, and through many layers more than these.
TOLERANCES: Final = {
    "float64": 1e-9,
    "complex128": 1e-9,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 1e-2,
    "bfloat16": 5e-2,
}
COARSE: Final = {t.as_datatype_enum: TOLERANCES[t.name] for t in (tf.float16, tf.bfloat16)}


def verify(original: TensorFlowModel, prepared: Model) -> None:
    """Compare the answers of all signatures. Raises NotPreparable: which differs, and by what."""
    for function in original.functions:
        signature = function.signature
        if prepared.signatures.get(signature.name) != signature:
            raise NotPreparable(f"Signature {signature.name} does not have its tensors any more.")
        _verify_signature(signature, original, prepared, _least_tolerance(function.function))


def _verify_signature(
    signature: Signature, original: Model, prepared: Model, least_tolerance: float
) -> None:
    generator = np.random.default_rng(0)
    size = _accepted_size(signature, original, generator)
    for wide, rows in itertools.product((False, True), BATCHES):
        inputs = question(signature, rows, size, generator, wide=wide)
        expected, refusal = _ask(original, signature, inputs)
        answers, failure = _ask(prepared, signature, inputs)
        place = f"signature {signature.name} with {rows} rows"
        if bool(refusal) != bool(failure):
            which = "only the original fails" if refusal else "only the prepared form fails"
            raise NotPreparable(f"Of {place} {which}: {refusal or failure}")
        for info in signature.outputs if not refusal else ():
            difference = compare(expected[info.name], answers[info.name], least_tolerance)
            if difference:
                raise NotPreparable(f"Output {info.name} of {place} differs: {difference}.")


def _accepted_size(signature: Signature, model: Model, generator: np.random.Generator) -> int:
    """Return a size of free dimensions that the model accepts. Raises NotPreparable."""
    refusals = []
    for size in SIZES:
        inputs = question(signature, 1, size, generator, wide=False)
        _, refusal = _ask(model, signature, inputs)
        if not refusal:
            return size
        refusals.append(refusal)
    raise NotPreparable(
        f"Signature {signature.name} accepts none of the random inputs that were tried, so its "
        f"answers cannot be compared. It says: {refusals[0]}"
    )


def _ask(model: Model, signature: Signature, inputs: Arrays) -> tuple[dict[str, Any], str]:
    """Return the answers, or none and the reason."""
    try:
        return model.call(signature.name, inputs), ""
    except REFUSALS as error:
        lines = [line.strip() for line in str(error).splitlines()]
        # TensorFlow puts a trace before the reason and the node, in brackets, after it.
        reasons = [line for line in lines if line and not line.startswith("[[")]
        return {}, f"{type(error).__name__}: {(reasons or ['no reason given'])[-1][:300]}"


def _least_tolerance(function: Any) -> float:
    """Return the tolerance for the coarsest floating point type that a function computes with."""
    used = types_of(function.graph.as_graph_def()) & COARSE.keys()
    return max((COARSE[dtype] for dtype in used), default=0.0)


def compare(expected: Array, found: Array, least_tolerance: float = 0.0) -> str:
    """Say how `found` differs from `expected` by more than rounding; empty if it does not."""
    if expected.dtype != found.dtype:
        return f"dtype {found.dtype}, not {expected.dtype}"
    if expected.shape != found.shape:
        return f"shape {found.shape}, not {expected.shape}"
    tolerance = TOLERANCES.get(expected.dtype.name)
    if tolerance is None:
        wrong = int(np.count_nonzero(expected != found))
        return f"{wrong} of {expected.size} values" if wrong else ""
    return _compare_floats(expected, found, max(tolerance, least_tolerance))


def _compare_floats(expected: Array, found: Array, tolerance: float) -> str:
    wider = np.complex128 if expected.dtype.kind == "c" else np.float64
    expected, found = expected.astype(wider), found.astype(wider)
    finite = np.isfinite(expected)
    scale = np.abs(expected[finite]).max(initial=0.0)
    close = np.isclose(found, expected, rtol=0, atol=tolerance * scale, equal_nan=True)
    if close.all():
        return ""
    off = np.abs(found - expected)[~close]
    most = float(off.max()) if np.isfinite(off).all() else float("inf")
    return (
        f"{off.size} of {expected.size} values, by up to {most:.3g}, "
        f"where {tolerance * scale:.3g} would be rounding"
    )
