"""The one rule for types and shapes: a value may change its type if it keeps its value."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from modelsup.worker.codecs.base import BadInput
from modelsup.worker.codecs.check import (
    cast,
    check_names,
    check_shapes,
    choose_signature,
    from_json,
)
from modelsup.worker.contract import Signature, TensorInfo

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


def info(dtype: str = "float32", *shape: int | None) -> TensorInfo:
    return TensorInfo("x", dtype, shape or None)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "float32", "float64"])
def test_numbers_take_the_signatures_type(dtype: str) -> None:
    array = from_json(info(dtype), [[1, 2.0], [3, 4]])
    assert array.dtype == dtype
    assert array.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_keep_their_limits(dtype: str) -> None:
    limits = np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    assert from_json(info(dtype), [low, high]).tolist() == [low, high]
    for beyond in (low - 1, high + 1):
        with pytest.raises(BadInput, match=f"'x' .*{dtype}.*out of range"):
            from_json(info(dtype), [0, beyond])


def test_a_64_bit_integer_survives_beside_a_float() -> None:
    assert from_json(info("int64"), [2**53 + 1, 1.0]).tolist() == [2**53 + 1, 1]


@pytest.mark.parametrize("value", [1e39, -1e39, 10**400])
def test_a_float_may_not_become_infinite(value: float) -> None:
    with pytest.raises(BadInput, match="out of range"):
        from_json(info(), [value])


def test_float16_and_int64_overflow_is_refused() -> None:
    with pytest.raises(BadInput, match="out of range"):
        cast(info("float16"), np.array([70000]))


def test_floats_may_be_infinite_or_nan_and_integers_may_not() -> None:
    values = [math.nan, math.inf, -math.inf]
    np.testing.assert_array_equal(from_json(info(), values), values)
    for value in values:
        with pytest.raises(BadInput, match="not a whole number"):
            from_json(info("int32"), [value])
        with pytest.raises(BadInput, match="not a whole number"):
            cast(info("int32"), np.array([value]))


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", [1.0, True]),
        ("float32", [1.0, None]),
        ("float32", ["1.0"]),
        ("float32", {"a": 1}),
        ("int32", [1.5]),
        ("int32", False),
        ("bool", [True, 1]),
        ("bool", ["true"]),
        ("string", [1]),
        ("string", [None]),
        ("string", [{"b64": "AA==", "more": 1}]),
        ("string", [{"b64": "not base64"}]),
        ("string", [{"b64": 7}]),
        ("string", ["\ud800"]),
        ("complex64", [1.0]),
    ],
)
def test_another_type_is_refused_by_name(dtype: str, value: Any) -> None:
    with pytest.raises(BadInput, match=dtype):
        from_json(info(dtype), value)


@pytest.mark.parametrize(
    "value", [[[1], [1, 2]], [[1], 2], [1, [2]], [[1], "ab"], [[], [1]], [[[1], 2], [[3], [4]]]]
)
@pytest.mark.parametrize("dtype", ["float32", "string"])
def test_ragged_lists_are_refused(dtype: str, value: Any) -> None:
    with pytest.raises(BadInput, match="differ in length or kind"):
        from_json(info(dtype), value)


def test_more_dimensions_than_numpy_has_are_refused() -> None:
    value: Any = 1.0
    for _ in range(200):
        value = [value]
    with pytest.raises(BadInput, match="200 dimensions"):
        from_json(info(), value)


def test_strings_become_bytes_with_their_trailing_nulls() -> None:
    array = from_json(info("string"), [["é", {"b64": "AAA="}]])
    assert array.dtype == object
    assert array.tolist() == [["é".encode(), b"\0\0"]]


@pytest.mark.parametrize(
    ("value", "shape"), [([], (0, 4, 0)), ([[]], (1, 0, 0)), ([[], []], (2, 0, 0))]
)
def test_an_empty_list_stands_for_the_dimensions_below(value: Any, shape: tuple[int, ...]) -> None:
    assert from_json(info("float32", None, 4, None), value).shape == shape


def test_bfloat16_is_a_float() -> None:
    pytest.importorskip("ml_dtypes")
    array = from_json(info("bfloat16"), [1, 2.5])
    assert array.dtype.name == "bfloat16"
    assert cast(info("float64"), array).tolist() == [1.0, 2.5]
    assert cast(info("int8"), array[:1]).tolist() == [1]
    with pytest.raises(BadInput, match="not a whole number"):
        cast(info("int8"), array)


def test_cast_returns_an_array_of_the_right_type_itself() -> None:
    array = np.ones(3, np.float32)
    assert cast(info(), array) is array


@pytest.mark.parametrize("source", ["bool", "object", "float32"])
@pytest.mark.parametrize("target", ["bool", "string", "float32"])
def test_cast_never_turns_bools_numbers_and_strings_into_one_another(
    source: str, target: str
) -> None:
    array = np.zeros(1, source)
    same = target.replace("string", "object") == source
    if same:
        assert cast(info(target), array) is array
    else:
        with pytest.raises(BadInput, match=r"'x' .*got"):
            cast(info(target), array)


@given(value=st.floats() | st.integers(-(2**70), 2**70), dtype=st.sampled_from(INTEGERS))
@settings(deadline=None)
def test_a_number_becomes_an_integer_only_with_its_value(value: float, dtype: str) -> None:
    try:
        array = from_json(info(dtype), value)
    except BadInput:
        limits = np.iinfo(dtype)
        assert math.isnan(value) or not (limits.min <= value <= limits.max and value % 1 == 0)
    else:
        assert int(array[()]) == value


def signature(*inputs: TensorInfo, batchable: bool = True) -> Signature:
    return Signature("serving_default", inputs, (), batchable)


def test_rows_are_the_shared_first_dimension() -> None:
    pair = signature(TensorInfo("a", "int8", (None, 2)), TensorInfo("b", "int8", None))
    arrays = {"a": np.zeros((3, 2), np.int8), "b": np.zeros((3, 1, 1), np.int8)}
    assert check_shapes(pair, arrays) == 3
    arrays["b"] = np.zeros(2, np.int8)
    with pytest.raises(BadInput, match="a has 3, b has 2"):
        check_shapes(pair, arrays)
    arrays["b"] = np.zeros((), np.int8)
    with pytest.raises(BadInput, match=r"'b' .*scalar"):
        check_shapes(pair, arrays)


def test_without_batching_there_are_no_rows() -> None:
    single = signature(TensorInfo("a", "int8", (2,)), batchable=False)
    assert check_shapes(single, {"a": np.zeros(2, np.int8)}) is None


def test_a_wrong_shape_is_told_with_what_to_do() -> None:
    image = signature(TensorInfo("image", "float32", (None, 8, 8, 3)))
    with pytest.raises(BadInput, match=r"'image' .*\[\?, 8, 8, 3\].*got shape \[2, 8, 9, 3\]$"):
        check_shapes(image, {"image": np.zeros((2, 8, 9, 3), np.float32)})
    with pytest.raises(BadInput, match="add a first dimension"):
        check_shapes(image, {"image": np.zeros((8, 8, 3), np.float32)})


def test_names_must_be_those_of_the_signature() -> None:
    pair = signature(TensorInfo("a", "int8", None), TensorInfo("b", "int8", None))
    check_names(pair, ["b", "a"])
    with pytest.raises(BadInput, match=r"missing input b; .*expects: a, b"):
        check_names(pair, ["a"])
    with pytest.raises(BadInput, match=r"unknown input 'c'; .*expects: a, b"):
        check_names(pair, ["a", "b", "c"])


def test_a_signature_is_chosen_by_name() -> None:
    known = {"serving_default": signature(), "other": signature()}
    assert choose_signature(known, None) is known["serving_default"]
    assert choose_signature(known, "other") is known["other"]
    for unknown in ("third", ["other"], 7):
        with pytest.raises(BadInput, match="it has: other, serving_default"):
            choose_signature(known, unknown)
