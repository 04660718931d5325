"""TensorFlow Serving's classify and regress bodies, both ways, without TensorFlow."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from modelsup.worker.codecs import tf_example, v1_examples
from modelsup.worker.codecs.base import BadInput, Request
from modelsup.worker.contract import Signature, TensorInfo

TEXT = TensorInfo("inputs", "string", (None,))
SCORES = TensorInfo("scores", "float32", (None, 2))
SIGNATURES = {
    "serving_default": Signature("serving_default", (TEXT,), (SCORES,), True, "classify"),
    "value": Signature("value", (TEXT,), (SCORES,), True, "regress"),
    "numbers": Signature("numbers", (SCORES,), (SCORES,), True, "regress"),
    "other": Signature("other", (TEXT,), (SCORES,), True),
}
X_IS_ONE = bytes.fromhex("0a0f 0a0d 0a0178 1208 1206 0a04 0000803f")


def decode(document: Any, method: str = "classify") -> Request:
    return v1_examples.decode(json.dumps(document).encode(), SIGNATURES, method)


def test_an_example_is_written_as_protobuf_has_it() -> None:
    assert tf_example.serialised({"x": 1.0}) == X_IS_ONE
    assert tf_example.serialised({"x": -1}) == bytes.fromhex(
        "0a15 0a13 0a0178 120e 1a0c 0a0a ffffffffffffffffff01"
    )
    assert tf_example.serialised({"x": "ab"}) == bytes.fromhex(
        "0a0d 0a0b 0a0178 1206 0a04 0a026162"
    )
    assert tf_example.serialised({"x": []}) == bytes.fromhex("0a07 0a05 0a0178 1200")
    assert tf_example.serialised({}) == bytes.fromhex("0a00")
    assert tf_example.serialised({"x": "a" * 200})[:3] == bytes.fromhex("0ad701")  # 215 bytes


def test_each_example_becomes_a_string() -> None:
    request = decode({"examples": [{"x": 1.0}, {}], "context": {}})
    assert (request.signature, request.rows) == ("serving_default", 2)
    assert request.inputs["inputs"].tolist() == [X_IS_ONE, b"\n\0"]
    assert decode({"examples": [{}], "context": {"x": 1.0}}).inputs["inputs"].tolist() == [X_IS_ONE]
    assert decode({"examples": []}).rows == 0
    assert decode({"examples": [], "signature_name": "value"}, "regress").signature == "value"


@pytest.mark.parametrize(
    ("document", "method", "message"),
    [
        ([], "classify", "must be a JSON object"),
        ({}, "classify", '"examples", a list'),
        ({"examples": {}}, "classify", '"examples", a list'),
        ({"examples": [1]}, "classify", "example 0 must be an object of features, not 1"),
        ({"examples": [{}, {"x": None}]}, "classify", "example 1: feature 'x': expected numbers"),
        ({"examples": [{"x": [1, "a"]}]}, "classify", "'x': expected numbers or strings, of one"),
        ({"examples": [{"x": {"b65": ""}}]}, "classify", "'x': .*is neither a string nor"),
        ({"examples": [{"x": {"b64": "%"}}]}, "classify", "'x': .*valid base64"),
        ({"examples": [{"x": {"b64": 3}}]}, "classify", "'x': .*valid base64"),
        ({"examples": [{"x": 2**63}]}, "classify", "'x': .*64 bits"),
        ({"examples": [{"x": 1e39}]}, "classify", "'x': .*range of float32"),
        ({"examples": [], "context": []}, "classify", '"context" must be an object'),
        ({"examples": [{"x": 1}], "context": {"x": 1}}, "classify", 'x is in "context" already'),
        ({"examples": []}, "regress", "is for :classify, not for :regress.*: numbers, value"),
        ({"examples": [], "signature_name": "other"}, "classify", "is for :predict"),
        ({"examples": [], "signature_name": "numbers"}, "regress", "serialised examples"),
        ({"examples": [], "signature_name": "none"}, "regress", "no signature 'none'"),
    ],
)
def test_what_cannot_be_served_is_said(document: Any, method: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode(document, method)


@pytest.mark.parametrize("features", [{"\ud800": 1}, {"x": "\ud800"}])
def test_text_that_has_no_bytes(features: dict[str, Any]) -> None:
    """The parser that takes NaN lets it through."""
    with pytest.raises(BadInput, match="not valid text"):
        tf_example.serialised(features)


def test_classes_are_pairs_of_label_and_score() -> None:
    scores = np.array([[0.5, np.nan], [np.inf, 0.1]], np.float32)
    labels = np.array([[b"cat", "dög".encode()], [b"", b"\xff"]], dtype=object)
    both = v1_examples.encode_classes({"scores": scores, "classes": labels}, 2)
    assert both.decode() == (
        '{"results":[[["cat",0.5],["dög",NaN]],[["",Infinity],["\N{REPLACEMENT CHARACTER}",0.1]]]}'
    )
    alone = v1_examples.encode_classes({"scores": scores}, 2)
    assert alone == b'{"results":[[["",0.5],["",NaN]],[["",Infinity],["",0.1]]]}'
    named = json.loads(v1_examples.encode_classes({"classes": labels}, 2))
    assert named["results"][0] == [["cat", 0.0], ["dög", 0.0]]
    assert v1_examples.encode_classes({"scores": scores[:0]}, 0) == b'{"results":[]}'
    assert v1_examples.encode_classes({"scores": scores[:, :0]}, 2) == b'{"results":[[],[]]}'


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_values_are_a_flat_list(shape: tuple[int, ...]) -> None:
    values = np.array([1.5, np.nan, 2], np.float32).reshape(shape)
    assert v1_examples.encode_values({"outputs": values}, 3) == b'{"results":[1.5,NaN,2.0]}'


@pytest.mark.parametrize(
    "outputs",
    [
        {},
        {"y": np.zeros((2, 2))},
        {"scores": np.zeros(2)},
        {"scores": np.zeros((3, 2))},
        {"classes": np.zeros((2, 2))},
        {"scores": np.zeros((2, 2)), "classes": np.full((2, 3), b"a", dtype=object)},
    ],
)
def test_outputs_that_are_no_classes(outputs: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the model gives no classes: expected 'classes'"):
        v1_examples.encode_classes(outputs, 2)


@pytest.mark.parametrize("outputs", [{}, {"outputs": np.zeros((2, 2))}, {"outputs": np.zeros(3)}])
def test_outputs_that_are_no_values(outputs: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="the model gives no values: expected 'outputs'"):
        v1_examples.encode_values(outputs, 2)
