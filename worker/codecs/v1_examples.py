"""TensorFlow Serving's REST classify and regress bodies: features in, labels or values out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson

from . import tf_example
from .base import BadInput, Body, Request, listed, shown
from .check import choose_signature
from .dtypes import STRING, name_of
from .json_text import number_text, parse_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..contract import Signature

    Array = np.ndarray[Any, Any]

CLASSIFY: Final = "classify"  # the methods, as signatures name them
REGRESS: Final = "regress"

# What TensorFlow calls the outputs of such signatures.
_CLASSES: Final = "classes"
_SCORES: Final = "scores"
_VALUES: Final = "outputs"


def decode(body: Body, signatures: Mapping[str, Signature], method: str) -> Request:
    """Return the request in a classify or regress body. Raises BadInput.

    Each entry of "examples", with the features of "context", becomes one serialised Example.
    """
    document = parse_object(body)
    signature = choose_signature(signatures, document.get("signature_name"))
    _check_method(signature, method, signatures)
    examples = document.get("examples")
    if type(examples) is not list:
        raise BadInput('the body must hold "examples", a list with one object of features each')
    context = document.get("context", {})
    if type(context) is not dict:
        raise BadInput('"context" must be an object of features')
    array = np.empty(len(examples), dtype=object)
    array[:] = _serialised(examples, context)
    rows = len(examples) if signature.batchable else None
    return Request(signature.name, {signature.inputs[0].name: array}, rows)


def _check_method(signature: Signature, method: str, signatures: Mapping[str, Signature]) -> None:
    if signature.method != method:
        fitting = listed(s.name for s in signatures.values() if s.method == method)
        raise BadInput(
            f"signature {signature.name!r} is for :{signature.method}, not for :{method}; "
            f'name another as "signature_name"; those for :{method}: {fitting}'
        )
    infos = signature.inputs
    if len(infos) != 1 or infos[0].dtype != STRING or infos[0].shape not in ((None,), None):
        raise BadInput(
            f"signature {signature.name!r} does not take serialised examples: it must have one "
            "input, a list of strings"
        )


def _serialised(examples: list[Any], context: dict[str, Any]) -> list[bytes]:
    common = tf_example.entries(context)
    found = []
    for number, example in enumerate(examples):
        if type(example) is not dict:
            raise BadInput(f"example {number} must be an object of features, not {shown(example)}")
        if both := example.keys() & context.keys():
            raise BadInput(
                f'example {number}: feature {listed(both)} is in "context" already; '
                "give it in one place"
            )
        try:
            found.append(tf_example.serialised(example, common))
        except BadInput as error:
            raise BadInput(f"example {number}: {error}") from None
    return found


def encode_classes(outputs: Mapping[str, Array], rows: int) -> bytes:
    """Return the answer to a classify request: [label, score] pairs for each of `rows` examples.

    A label that the model does not give is "", a score 0.0. Raises BadInput on outputs that are
    not those of a classifier.
    """
    classes, scores = outputs.get(_CLASSES), outputs.get(_SCORES)
    known = classes if classes is not None else scores
    if known is None or known.ndim != 2 or len(known) != rows:
        raise _not_of("classes", f"{_CLASSES!r} or {_SCORES!r}, [examples, classes]", outputs)
    if classes is not None and name_of(classes.dtype) != STRING:
        raise _not_of("classes", f"{_CLASSES!r} of strings", outputs)
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise _not_of("classes", f"{_CLASSES!r} and {_SCORES!r} of one shape", outputs)
    labels = [b'""'] * known.size if classes is None else _label_texts(classes)
    numbers = [b"0.0"] * known.size if scores is None else _number_texts(scores)
    pairs = [b"[%b,%b]" % pair for pair in zip(labels, numbers, strict=True)]
    width = known.shape[1]
    texts = [b"[" + b",".join(pairs[i * width : (i + 1) * width]) + b"]" for i in range(rows)]
    return b'{"results":[' + b",".join(texts) + b"]}"


def encode_values(outputs: Mapping[str, Array], rows: int) -> bytes:
    """Return the answer to a regress request: one value for each of `rows` examples.

    Raises BadInput on an output that is not that of a regression.
    """
    values = outputs.get(_VALUES)
    if values is None or values.shape not in ((rows,), (rows, 1)):
        raise _not_of("values", f"{_VALUES!r}, [examples] or [examples, 1]", outputs)
    return b'{"results":' + number_text(values.reshape(-1)) + b"}"


def _label_texts(classes: Array) -> list[bytes]:
    flat = classes.reshape(-1).tolist()
    texts = (i if isinstance(i, str) else i.decode(errors="replace") for i in flat)
    return [orjson.dumps(text) for text in texts]


def _number_texts(numbers: Array) -> list[bytes]:
    text = number_text(numbers.reshape(-1))[1:-1]
    return text.split(b",") if text else []


def _not_of(what: str, expected: str, outputs: Mapping[str, Array]) -> BadInput:
    shapes = listed(f"{name} {list(array.shape)}" for name, array in outputs.items())
    return BadInput(f"the model gives no {what}: expected {expected}; it has {shapes}")
