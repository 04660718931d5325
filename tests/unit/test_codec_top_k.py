"""The highest values of an output, with their class names."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from modelsup.worker.codecs.base import BadInput
from modelsup.worker.codecs.top_k import as_json, classified, highest

Array = np.ndarray[Any, Any]
SCORES = np.array([[0.25, 3.5, 1.0], [7.0, -1.0, 7.0]], np.float32)
NAMES = ("cat", "dög")


def test_v2_strings_have_value_number_and_name() -> None:
    found = classified("y", SCORES, 2, 2, NAMES)
    assert found.tolist() == [["3.5:1:dög".encode(), b"1.0:2"], [b"7.0:0:cat", b"7.0:2"]]
    assert classified("y", SCORES[0], None, 1, ()).tolist() == [b"3.5:1"]


def test_json_has_a_list_for_each_row() -> None:
    assert json.loads(as_json("y", SCORES, 2, 2, NAMES)) == [
        [{"class": "dög", "index": 1, "score": 3.5}, {"class": None, "index": 2, "score": 1.0}],
        [{"class": "cat", "index": 0, "score": 7.0}, {"class": None, "index": 2, "score": 7.0}],
    ]
    assert json.loads(as_json("y", SCORES[0], None, 1, NAMES))[0]["index"] == 1


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "float16", "float64"])
def test_any_type_of_number(dtype: str) -> None:
    order, _ = highest("y", np.array([[0, 1, 0]]).astype(dtype), 1, 5)
    assert order.tolist() == [[1, 0, 2]]


def test_what_is_not_finite_has_its_place() -> None:
    scores = np.array([[np.nan, -np.inf, np.inf, 0.0]], np.float32)
    order, values = highest("y", scores, 1, 4)
    assert order.tolist() == [[2, 3, 0, 1]]
    assert values.tolist()[0][:2] == [np.inf, 0.0]


def test_no_rows_and_more_dimensions() -> None:
    assert classified("y", np.zeros((0, 3), np.float32), 0, 2, ()).shape == (0, 2)
    assert json.loads(as_json("y", np.zeros((0, 3), np.float32), 0, 2, ())) == []
    assert classified("y", np.arange(8).reshape(2, 2, 2), 2, 1, ()).tolist() == [[b"3:3"], [b"7:3"]]


def test_strings_have_no_highest_value() -> None:
    with pytest.raises(BadInput, match="'y' holds strings"):
        highest("y", np.array([[b"a"]], dtype=object), 1, 1)


@given(
    scores=nps.arrays("float32", st.tuples(st.integers(1, 3), st.integers(1, 9))),
    count=st.integers(1, 12),
)
def test_the_values_fall(scores: Array, count: int) -> None:
    order, values = highest("y", scores, len(scores), count)
    assert order.shape == (len(scores), min(count, scores.shape[1]))
    known = np.nan_to_num(values, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    assert (known[:, :-1] >= known[:, 1:]).all()
    np.testing.assert_array_equal(np.take_along_axis(scores, order, 1), values)
