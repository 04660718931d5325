"""TensorFlow Serving's REST bodies, in row and column form, both ways."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from modelsup.worker.codecs import v1
from modelsup.worker.codecs.base import BadInput, Request
from modelsup.worker.contract import Signature, TensorInfo

X = TensorInfo("x", "float32", (None, None))
IDS = TensorInfo("ids", "int64", (None,))
TEXT = TensorInfo("text", "string", (None,))


def signatures(*inputs: TensorInfo) -> dict[str, Signature]:
    return {"serving_default": Signature("serving_default", inputs, (), batchable=True)}


def decode(document: Any, *inputs: TensorInfo) -> Request:
    return v1.decode(json.dumps(document).encode(), signatures(*inputs))


def answer(outputs: dict[str, Any], *, in_rows: bool = True) -> Any:
    request = Request("serving_default", {}, None, {"in_rows": in_rows})
    return json.loads(v1.encode(request, {k: np.asarray(v) for k, v in outputs.items()}))


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [[1, 2], [3, 4]]},
        {"instances": [{"x": [1, 2]}, {"x": [3, 4]}]},
        {"inputs": [[1, 2], [3, 4]]},
        {"inputs": {"x": [[1, 2], [3, 4]]}, "signature_name": "serving_default"},
    ],
)
def test_one_input_has_four_forms(document: Any) -> None:
    request = decode(document, X)
    assert request.rows == 2
    assert request.inputs["x"].dtype == np.float32
    assert request.inputs["x"].tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    "document",
    [
        {"instances": [{"ids": 7, "text": "a"}, {"ids": 8, "text": "b"}]},
        {"inputs": {"ids": [7, 8], "text": ["a", "b"]}},
    ],
)
def test_several_inputs_come_by_name(document: Any) -> None:
    request = decode(document, IDS, TEXT)
    assert request.inputs["ids"].tolist() == [7, 8]
    assert request.inputs["text"].tolist() == [b"a", b"b"]


@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_base64_stands_for_bytes_and_not_for_a_name(form: str) -> None:
    assert decode({form: [{"b64": "/w=="}]}, TEXT).inputs["text"].tolist() == [b"\xff"]


def test_an_input_may_be_called_b64() -> None:
    named = TensorInfo("b64", "int8", (None,))
    assert decode({"inputs": {"b64": [5]}}, named).inputs["b64"].tolist() == [5]


def test_a_last_dimension_of_one_may_be_left_out() -> None:
    """As TensorFlow Serving's own example does; then the answer leaves it out as well."""
    column = TensorInfo("x", "float32", (None, 1))
    for document in ({"instances": [1, 2]}, {"inputs": [1, 2]}, {"inputs": {"x": [1, 2]}}):
        request = decode(document, column)
        assert request.inputs["x"].tolist() == [[1], [2]]
        outputs = {"y": np.array([[3.0], [4.0]]), "z": np.array([[5, 6], [7, 8]])}
        body = json.loads(v1.encode(request, outputs))
        if "instances" in document:
            assert body == {"predictions": [{"y": 3.0, "z": [5, 6]}, {"y": 4.0, "z": [7, 8]}]}
        else:
            assert body == {"outputs": {"y": [3.0, 4.0], "z": [[5, 6], [7, 8]]}}
    assert json.loads(v1.encode(decode({"instances": [[1]]}, column), {"y": np.ones((1, 1))})) == {
        "predictions": [[1.0]]
    }
    with pytest.raises(BadInput, match="got shape"):
        decode({"instances": [[1, 2]]}, column)
    with pytest.raises(BadInput, match="got shape"):
        decode({"instances": [1, 2]}, TensorInfo("x", "float32", (None, 2)))


def test_no_instances_are_an_empty_batch() -> None:
    request = decode({"instances": []}, IDS, TensorInfo("x", "float32", (None, 3)))
    assert request.rows == 0
    assert request.inputs["x"].shape == (0, 3)


def test_numbers_may_be_the_literals_that_tensorflow_serving_takes() -> None:
    body = b'{"instances": [[NaN, Infinity, -Infinity, Inf, -Inf]], "note": "\\"Inf and NaN"}'
    row = v1.decode(body, signatures(X)).inputs["x"][0].tolist()
    assert math.isnan(row[0])
    assert row[1:] == [math.inf, -math.inf, math.inf, -math.inf]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"[1]", "must be a JSON object"),
        (b'{"instances": [[1]]', "not JSON"),
        (b'{"instances": [[NaN]]', "not JSON"),
        (b'{"a": NaN, "b": "\xff"}', "not JSON"),
        (b'{"a":NaN,"instances":' + b"[" * 100_000, "not JSON"),
        (b"{}", 'either "instances"'),
        (b'{"instances": [[1]], "inputs": [[1]]}', 'either "instances"'),
        (b'{"instances": {"x": [1]}}', "must be a list"),
        (b'{"instances": [{"x": [1]}, [1]]}', "instance 1 must be an object"),
        (b'{"instances": [{"x": [1]}, {"y": [1]}]}', "instance 1: missing input x"),
        (b'{"inputs": {"x": [[1]], "z": 1}}', "unknown input 'z'"),
        (b'{"instances": [[1]], "signature_name": "other"}', "no signature 'other'"),
        (b'{"instances": [[1], [1, 2]]}', "'x' .*differ in length"),
        (b'{"instances": [1, 2]}', "'x' .*got shape"),
        (b'{"instances": [["a"]]}', "'x' .*'a' is of another type"),
    ],
)
def test_what_cannot_be_served_is_said(body: bytes, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        v1.decode(body, signatures(X))


@pytest.mark.parametrize("document", [{"instances": [1]}, {"inputs": [1]}])
def test_several_inputs_need_names(document: Any) -> None:
    with pytest.raises(BadInput, match="object that holds: ids, text"):
        decode(document, IDS, TEXT)


def test_one_output_stands_without_its_name() -> None:
    assert answer({"y": [[1.5], [2.5]]}) == {"predictions": [[1.5], [2.5]]}
    assert answer({"y": 1.5}, in_rows=False) == {"outputs": 1.5}


def test_several_outputs_come_by_name() -> None:
    outputs = {"y": np.array([[1], [2]], np.int8), 'n"': [True, False], "s": np.array([b"a", b"b"])}
    assert answer(outputs, in_rows=False) == {
        "outputs": {"y": [[1], [2]], 'n"': [True, False], "s": ["a", "b"]}
    }
    assert answer(outputs) == {
        "predictions": [{"y": [1], 'n"': True, "s": "a"}, {"y": [2], 'n"': False, "s": "b"}]
    }


@pytest.mark.parametrize("outputs", [{"y": 1.0}, {"y": [1.0], "z": [1.0, 2.0]}])
def test_outputs_without_shared_rows_need_the_column_form(outputs: Any) -> None:
    with pytest.raises(BadInput, match='send "inputs"'):
        answer(outputs)
    assert answer(outputs, in_rows=False)["outputs"]


def test_bytes_are_base64_by_name_or_by_need() -> None:
    values = np.array([b"a", b"\xff"], dtype=object)
    assert answer({"text": values}) == {"predictions": ["a", {"b64": "/w=="}]}
    assert answer({"jpg_bytes": values}) == {"predictions": [{"b64": "YQ=="}, {"b64": "/w=="}]}
    assert answer({"text": np.array(b"a", dtype=object)}, in_rows=False) == {"outputs": "a"}


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize("null", ["y", "null"])
def test_what_is_not_finite_is_written_as_a_literal(dtype: str, null: str) -> None:
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, math.nan], [math.inf, -math.inf]]).astype(dtype)
    request = Request("serving_default", {}, None, {"in_rows": True})
    assert v1.encode(request, {null: array}) == (
        b'{"predictions":[[1.5,NaN],[Infinity,-Infinity]]}'
    )
    assert v1.encode(request, {null: array[:, 0], "z": array}) == (
        b'{"predictions":[{"%s":1.5,"z":[1.5,NaN]},{"%s":Infinity,"z":[Infinity,-Infinity]}]}'
        % (null.encode(), null.encode())
    )


def test_an_output_that_is_not_contiguous_is_written_in_order() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    assert answer({"y": array})["predictions"] == array.tolist()


def test_a_type_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(BadInput, match="complex64"):
        answer({"y": np.zeros(1, np.complex64)})


NUMBERS = ["bool", "int8", "int64", "uint8", "uint64", "float16", "float32", "float64"]
ARRAYS = st.sampled_from(NUMBERS).flatmap(
    lambda dtype: nps.arrays(dtype, nps.array_shapes(min_dims=1, max_dims=4, min_side=0))
)


@given(array=ARRAYS, in_rows=st.booleans())
@settings(deadline=None)
def test_what_is_encoded_decodes_to_itself(array: np.ndarray[Any, Any], in_rows: bool) -> None:
    spec = TensorInfo("x", array.dtype.name, (None, *array.shape[1:]))
    request = Request("serving_default", {}, None, {"in_rows": in_rows})
    body = v1.encode(request, {"x": array})
    body = body.replace(b"predictions", b"instances").replace(b"outputs", b"inputs")
    decoded = v1.decode(body, signatures(spec))
    assert decoded.rows == array.shape[0]
    assert decoded.inputs["x"].dtype == array.dtype
    np.testing.assert_array_equal(decoded.inputs["x"], array)


@given(values=st.lists(st.binary() | st.text().map(str.encode)))
@settings(deadline=None)
def test_strings_round_trip(values: list[bytes]) -> None:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    request = Request("serving_default", {}, None, {"in_rows": True})
    body = v1.encode(request, {"text": array}).replace(b'{"predictions"', b'{"instances"')
    assert v1.decode(body, signatures(TEXT)).inputs["text"].tolist() == values


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KEYS = st.sampled_from(["instances", "inputs", "signature_name", "x", "ids", "text", "b64"])
JSON = st.recursive(
    LEAVES, lambda j: st.lists(j, max_size=3) | st.dictionaries(KEYS, j, max_size=3)
)


@given(
    document=st.dictionaries(KEYS, JSON, max_size=3) | JSON,
    inputs=st.sampled_from([(X,), (IDS,), (TEXT,), (IDS, TEXT), (X, IDS, TEXT), ()]),
)
@settings(deadline=None, max_examples=300)
def test_any_json_is_served_or_refused(document: Any, inputs: tuple[TensorInfo, ...]) -> None:
    try:
        request = decode(document, *inputs)
    except BadInput:
        return
    assert request.inputs.keys() == {i.name for i in inputs}


@given(body=st.binary())
@settings(deadline=None)
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        v1.decode(body, signatures(X))
