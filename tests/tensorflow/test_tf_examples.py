"""What the own encoder of Examples writes, TensorFlow reads."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from modelsup.worker.codecs import tf_example

pytestmark = pytest.mark.tensorflow

INTEGERS = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
BLOBS = st.binary().map(lambda blob: {"b64": base64.b64encode(blob).decode()})
VALUES = st.one_of(
    INTEGERS,
    FLOATS,
    TEXTS,
    BLOBS,
    st.lists(INTEGERS),
    st.lists(FLOATS),
    st.lists(TEXTS | BLOBS),
)


def read(message: bytes) -> dict[str, Any]:
    """Return the features of a serialised Example, as TensorFlow understands it."""
    features = tf.train.Example.FromString(message).features.feature
    kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
    return {
        name: list(getattr(features[name], kind).value) if kind else []
        for name, kind in kinds.items()
    }


def as_list(value: Any) -> list[Any]:
    """Return what a feature should hold."""
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, dict) for item in items) or all(isinstance(i, str) for i in items):
        return [base64.b64decode(i["b64"]) if isinstance(i, dict) else i.encode() for i in items]
    return items


@given(features=st.dictionaries(TEXTS, VALUES, max_size=5))
@settings(deadline=None)
def test_tensorflow_reads_the_same(features: dict[str, Any]) -> None:
    found = read(tf_example.serialised(features))
    assert found.keys() == features.keys()
    for name, value in features.items():
        np.testing.assert_array_equal(found[name], as_list(value))


def test_bools_are_integers_and_one_fraction_makes_all_floats() -> None:
    assert read(tf_example.serialised({"a": [True, 2], "b": [1, 0.5]})) == {
        "a": [1, 2],
        "b": [1.0, 0.5],
    }


def test_a_context_is_part_of_each_example() -> None:
    context = tf_example.entries({"shared": "s"})
    assert read(tf_example.serialised({"own": 1}, context)) == {"shared": [b"s"], "own": [1]}
