"""TensorFlow Serving's classify and regress: serialised examples in, labels or values out. Pure."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from ..errors import Invalid
from .predict import SCHEMA
from .tensors import BYTES, to_raw, values
from .worker_body import Tensor, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from modelsup.worker.contract import Signature

    from .worker_body import Answer

CLASSIFY: Final = "classify"  # the methods, as signatures name them
REGRESS: Final = "regress"

# What TensorFlow calls the outputs of such signatures.
_CLASSES: Final = "classes"
_SCORES: Final = "scores"
_VALUES: Final = "outputs"

_messages: Final = SCHEMA.messages


def to_worker(
    given: Any, method: str, wanted: str, signatures: Sequence[Signature]
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return headers and body for a worker of an Input. Raises Invalid.

    `wanted` names the signature; "" is the default one.
    """
    examples = _examples(given)
    if not examples:
        raise Invalid("the input holds no examples; send one at least")
    name = wanted or "serving_default"
    signature = next((s for s in signatures if s.name == name), None)
    if signature is None or signature.method != method:
        fitting = ", ".join(s.name for s in signatures if s.method == method) or "none"
        raise Invalid(f"the model has no signature {name!r} for {method}; it has: {fitting}")
    if len(signature.inputs) != 1 or signature.inputs[0].dtype != "string":
        raise Invalid(f"signature {name!r} does not take serialised examples")
    data = to_raw(BYTES, examples)
    tensor = Tensor(signature.inputs[0].name, BYTES, [len(examples)], data)
    return encode([tensor], parameters={"signature_name": name})


def classified(answer: Answer) -> Any:
    """Return the ClassificationResult. A label that the model does not give is "", a score 0."""
    outputs = {tensor.name: tensor for tensor in answer.outputs}
    classes, scores = outputs.get(_CLASSES), outputs.get(_SCORES)
    known = classes or scores
    if known is None or len(known.shape) != 2 or (scores and scores.shape != known.shape):
        raise _not_of("classes", f"{_CLASSES!r} or {_SCORES!r}, [examples, classes]", answer)
    if classes and classes.datatype != BYTES:
        raise _not_of("classes", f"{_CLASSES!r} of {BYTES}", answer)
    labels: Iterable[bytes] = values(BYTES, classes.data) if classes else repeat(b"")
    numbers: Iterable[float] = _floats(scores, answer) if scores else repeat(0.0)
    pairs = zip(labels, numbers, strict=False)
    result = _messages.ClassificationResult()
    rows, width = known.shape
    for _ in range(rows):
        row = result.classifications.add().classes
        for _ in range(width):
            label, score = next(pairs)
            row.add(label=label.decode(errors="replace"), score=score)
    return result


def regressed(answer: Answer) -> Any:
    """Return the RegressionResult."""
    tensor = next((tensor for tensor in answer.outputs if tensor.name == _VALUES), None)
    if tensor is None or list(tensor.shape[1:]) not in ([], [1]) or not tensor.shape:
        raise _not_of("values", f"{_VALUES!r}, [examples] or [examples, 1]", answer)
    result = _messages.RegressionResult()
    for value in _floats(tensor, answer):
        result.regressions.add(value=value)
    return result


def _examples(given: Any) -> list[bytes]:
    if given.WhichOneof("kind") == "example_list_with_context":
        # Parsing what was put together merges the features of both.
        both = given.example_list_with_context
        return [both.context + example for example in both.examples]
    return list(given.example_list.examples)


def _floats(tensor: Tensor, answer: Answer) -> Any:
    if tensor.datatype not in {"FP32", "FP64"}:
        raise _not_of("numbers", f"{tensor.name!r} of FP32", answer)
    return values(tensor.datatype, tensor.data)


def _not_of(what: str, expected: str, answer: Answer) -> Invalid:
    there = ", ".join(f"{t.name} {t.datatype} {list(t.shape)}" for t in answer.outputs)
    return Invalid(f"the model gives no {what}: expected {expected}; it has {there}")
