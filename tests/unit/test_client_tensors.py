"""Tensors in the V2 protocol's binary form: what is sent, and what is made of an answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from modelsup.client import InvalidRequest, ModelsupError, tensors

NUMBERS = hnp.scalar_dtypes().filter(lambda d: d.kind in "biuf" and d.itemsize <= 8)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)


def _there_and_back(inputs: dict[str, Any]) -> dict[str, Any]:
    """Decode a request as if it were an answer: the two have the same tensors."""
    body, length = tensors.encode(inputs, None)
    header = json.loads(body[:length])
    return tensors.decode_outputs({"outputs": header["inputs"]}, memoryview(body)[length:])


@given(array=hnp.arrays(NUMBERS, SHAPES))
def test_numbers_of_any_type_shape_and_byte_order_survive(array: Any) -> None:
    found = _there_and_back({"first": np.zeros(3), "x": array})["x"]

    assert found.dtype == array.dtype.newbyteorder("=")
    np.testing.assert_array_equal(found, array)
    assert found.flags.writeable


@given(items=st.lists(st.binary(max_size=300), max_size=5))
def test_byte_strings_survive(items: list[bytes]) -> None:
    array = np.empty((len(items), 1), dtype=object)
    array[:, 0] = items

    assert _there_and_back({"s": array})["s"].tolist() == array.tolist()


def test_text_is_sent_as_utf_8() -> None:
    assert _there_and_back({"s": np.array(["é", "b"])})["s"].tolist() == ["é".encode(), b"b"]


def test_bfloat16_survives() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    array = np.array([1.5, -2.0], dtype=bfloat16)

    found = _there_and_back({"x": array})["x"]

    assert found.dtype == bfloat16
    assert found.tolist() == [1.5, -2.0]


def test_the_request_names_the_signature_and_asks_for_binary() -> None:
    body, length = tensors.encode({"x": np.zeros((2, 3), np.float32)}, "encode")

    assert json.loads(body[:length]) == {
        "inputs": [
            {
                "name": "x",
                "shape": [2, 3],
                "datatype": "FP32",
                "parameters": {"binary_data_size": 24},
            }
        ],
        "parameters": {"binary_data_output": True, "signature_name": "encode"},
    }


def test_complex_numbers_cannot_be_sent() -> None:
    with pytest.raises(InvalidRequest, match="'x' has complex128 values"):
        tensors.encode({"x": np.array([1j])}, None)


def test_outputs_in_json_are_read_too() -> None:
    outputs = tensors.decode_outputs(
        {
            "outputs": [
                {"name": "y", "datatype": "INT64", "shape": [2, 1], "data": [1, 2]},
                {"name": "s", "datatype": "BYTES", "shape": [1], "data": ["a"]},
                {"name": "b", "datatype": "BF16", "shape": [1], "data": [0.5]},
            ]
        },
        memoryview(b""),
    )

    assert outputs["y"].tolist() == [[1], [2]]
    assert outputs["y"].dtype == np.int64
    assert outputs["s"].tolist() == [b"a"]
    assert outputs["b"].tolist() == [0.5]


@pytest.mark.parametrize(
    ("tensor", "raw"),
    [
        ({"name": "y"}, b""),
        ({"name": "y", "datatype": "FP32", "shape": [3], "data": [1.0]}, b""),
        (
            {
                "name": "y",
                "datatype": "FP32",
                "shape": [2],
                "parameters": {"binary_data_size": 8},
            },
            b"1234",
        ),
        (
            {
                "name": "y",
                "datatype": "BYTES",
                "shape": [1],
                "parameters": {"binary_data_size": 5},
            },
            b"\x09\0\0\0a",
        ),
        ({"name": "y", "datatype": "FP128", "shape": [0], "data": []}, b""),
    ],
)
def test_a_broken_answer_is_an_error(tensor: dict[str, Any], raw: bytes) -> None:
    with pytest.raises(ModelsupError) as caught:
        tensors.decode_outputs({"outputs": [tensor]}, memoryview(raw))

    assert caught.value.code == "bad_answer"


@pytest.mark.parametrize(
    ("array", "dtype", "expected"),
    [
        (np.array([0.1]), "float32", np.dtype(np.float32)),
        (np.array([1, 2]), "float32", np.dtype(np.float32)),
        (np.array([np.inf, np.nan]), "float16", np.dtype(np.float16)),
        (np.array([1e300]), "float32", np.dtype(np.float64)),
        (np.array([1.5]), "int32", np.dtype(np.float64)),
        (np.array([True]), "float32", np.dtype(np.bool_)),
        (np.array(["a"]), "float32", np.dtype("<U1")),
    ],
)
def test_only_what_keeps_its_value_is_narrowed(array: Any, dtype: str, expected: Any) -> None:
    assert tensors.narrowed(array, dtype).dtype == expected


def test_ragged_lists_name_the_input() -> None:
    with pytest.raises(InvalidRequest, match="'x' cannot be made an array"):
        tensors.as_array("x", [[1, 2], [3]])
