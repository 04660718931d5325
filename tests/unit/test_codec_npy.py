"""Bodies in numpy's file format, both ways."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from modelsup.worker.codecs import npy
from modelsup.worker.codecs.base import BadInput, NotAcceptable
from modelsup.worker.contract import Signature, TensorInfo

Array = np.ndarray[Any, Any]
X = TensorInfo("x", "float32", (None, 2))
TEXT = TensorInfo("text", "string", (None,))


def signatures(*inputs: TensorInfo) -> dict[str, Signature]:
    return {"serving_default": Signature("serving_default", inputs, (), batchable=True)}


def saved(array: object, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), **options)
    return file.getvalue()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", "<i2", "u1"])
def test_numbers_take_the_type_of_the_input(order: Any, dtype: str) -> None:
    array = np.arange(6).reshape(3, 2).astype(dtype, order=order)
    request = npy.decode(saved(array), signatures(X))
    assert request.rows == 3
    assert request.inputs["x"].dtype == np.float32
    np.testing.assert_array_equal(request.inputs["x"], array)


def test_large_numbers_are_not_copied() -> None:
    body = saved(np.zeros((1000, 2), np.float32))
    read = npy.decode(body, signatures(X)).inputs["x"]
    assert np.shares_memory(read, np.frombuffer(body, np.uint8))


@pytest.mark.parametrize("texts", [["a", "öl"], [b"a", "öl".encode()]])
def test_strings_become_bytes(texts: list[Any]) -> None:
    read = npy.decode(saved(texts), signatures(TEXT)).inputs["text"]
    assert read.tolist() == [b"a", "öl".encode()]


def test_no_rows() -> None:
    assert npy.decode(saved(np.zeros((0, 2), np.float32)), signatures(X)).rows == 0


@pytest.mark.parametrize(
    ("body", "inputs", "message"),
    [
        (b"", (X,), "not an array in .npy format"),
        (b"{}", (X,), "not an array in .npy format"),
        (saved([[1, 2]])[:-1], (X,), "takes 16 bytes, but 15 follow"),
        (saved([[1, 2]]) + b"x", (X,), "takes 16 bytes, but 17 follow"),
        (saved([[None, {}]], allow_pickle=True), (X,), "of type object"),
        (saved([[1j, 2]]), (X,), "of type complex128"),
        (saved([[1.0, 2.0, 3.0]]), (X,), r"'x' \(expected float32 of shape \[\?, 2\]\).*\[1, 3\]"),
        (saved([["a", "b"]]), (X,), "'x'.*got string"),
        (saved([[1.0, 2.0]]), (X, TEXT), "has the inputs text, x"),
    ],
)
def test_what_cannot_be_served_is_said(
    body: bytes, inputs: tuple[TensorInfo, ...], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        npy.decode(body, signatures(*inputs))


@given(body=st.binary().map(lambda tail: b"\x93NUMPY" + tail))
@settings(deadline=None)
def test_any_bytes_are_refused(body: bytes) -> None:
    with pytest.raises(BadInput):
        npy.decode(body, signatures(X))


@given(array=nps.arrays(st.sampled_from(["f4", "f2", "i8", "?"]), nps.array_shapes(min_side=0)))
@settings(deadline=None)
def test_an_answer_is_read_by_numpy(array: Array) -> None:
    read = np.load(io.BytesIO(b"".join(npy.encode({"y": array.T}))))
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array.T)


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"a": np.zeros(1), "b": np.zeros(1)}, "has the outputs a, b"),
        ({"a": np.array([b"x"], dtype=object)}, "'a' holds strings"),
    ],
)
def test_what_is_no_single_array_of_numbers_is_not_acceptable(
    outputs: dict[str, Array], message: str
) -> None:
    with pytest.raises(NotAcceptable, match=message):
        npy.encode(outputs)
