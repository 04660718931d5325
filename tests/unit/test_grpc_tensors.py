"""Tensors of gRPC messages on their way to workers and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.supervisor.errors import Invalid, TooLarge
from modelsup.supervisor.grpc import examples, infer, predict
from modelsup.supervisor.grpc.tensors import BYTES, fill, to_raw, values
from modelsup.supervisor.grpc.worker_body import JSON_SIZE, Answer, Tensor, decode, encode
from modelsup.worker.contract import Signature, TensorInfo

NUMPY = {
    "BOOL": "?",
    "UINT8": "u1",
    "UINT16": "u2",
    "UINT32": "u4",
    "UINT64": "u8",
    "INT8": "i1",
    "INT16": "i2",
    "INT32": "i4",
    "INT64": "i8",
    "FP32": "f4",
    "FP64": "f8",
}
LIMIT = 1_000_000  # bytes


@pytest.mark.parametrize("datatype", NUMPY)
def test_raw_bytes_are_those_of_numpy(datatype: str) -> None:
    array = np.array([0, 1, 1], NUMPY[datatype])
    assert to_raw(datatype, array.tolist()) == array.tobytes()
    assert list(values(datatype, array.tobytes())) == array.tolist()


@given(st.lists(st.binary(max_size=300)))
def test_bytes_stand_after_their_length(elements: list[bytes]) -> None:
    assert list(values(BYTES, to_raw(BYTES, elements))) == elements


@pytest.mark.parametrize("size", [0, 1, 31, 32, 5000])
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_floats_are_put_into_a_message_at_once(datatype: str, size: int) -> None:
    array = np.linspace(-1, 1, size, dtype=NUMPY[datatype])
    contents = infer.SCHEMA.messages.InferTensorContents()
    field = f"{datatype.lower()}_contents"
    fill(contents, field, datatype, array.tobytes())
    assert list(getattr(contents, field)) == array.tolist()


@pytest.mark.parametrize(("datatype", "value"), [("INT8", 128), ("UINT8", -1), ("FP16", 2**16)])
def test_values_out_of_range(datatype: str, value: int) -> None:
    with pytest.raises(Invalid, match=f"does not fit into {datatype}"):
        to_raw(datatype, [value])


def test_a_request_of_a_worker() -> None:
    tensors = [Tensor("a", "FP32", [1], b"1234", {"p": 1}), Tensor("b", BYTES, [0], b"")]
    headers, body = encode(tensors, [{"name": "y"}], {"signature_name": "s"}, "seven")
    size = int(dict(headers)[JSON_SIZE])
    assert body[size:] == b"1234"
    assert orjson.loads(body[:size]) == {
        "id": "seven",
        "inputs": [
            {
                "name": "a",
                "datatype": "FP32",
                "shape": [1],
                "parameters": {"p": 1, "binary_data_size": 4},
            },
            {"name": "b", "datatype": BYTES, "shape": [0], "parameters": {"binary_data_size": 0}},
        ],
        "outputs": [{"name": "y"}],
        "parameters": {"signature_name": "s", "binary_data_output": True},
    }


def test_an_answer_without_outputs_is_all_json() -> None:
    body = b'{"model_name":"m","model_version":"1","outputs":[]}'
    assert decode([], body) == Answer("m", "1", "", [])


def answer_of(*tensors: Tensor) -> Answer:
    return Answer("m", "1", "", list(tensors))


def test_types_without_a_typed_form_make_an_answer_raw() -> None:
    request = infer.SCHEMA.messages.ModelInferRequest()
    request.inputs.add(name="x").contents.fp32_contents.append(1.0)
    floats, halves = Tensor("a", "FP32", [1], b"1234"), Tensor("b", "FP16", [1], b"12")
    assert infer.from_worker(request, answer_of(floats)).outputs[0].HasField("contents")
    raw = infer.from_worker(request, answer_of(floats, halves))
    assert list(raw.raw_output_contents) == [b"1234", b"12"]


def tensor_proto(**fields: Any) -> Any:
    request = predict.SCHEMA.messages.PredictRequest()
    request.inputs["x"].MergeFrom(predict.SCHEMA.messages.TensorProto(**fields))
    return request


def shape(*sizes: int) -> dict[str, Any]:
    return {"dim": [{"size": size} for size in sizes]}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "tensors of DT_INVALID cannot travel"),
        ({"dtype": 99}, "tensors of 99 cannot travel"),
        ({"dtype": "DT_FLOAT", "tensor_shape": {"unknown_rank": True}}, "shape of a value"),
        ({"dtype": "DT_FLOAT", "tensor_shape": shape(-1)}, "shape of a value"),
        ({"dtype": "DT_FLOAT", "tensor_shape": shape(2)}, "takes 8 bytes, but the data has 0"),
        (
            {"dtype": "DT_FLOAT", "tensor_shape": shape(1), "float_val": [1, 2]},
            "takes 4 bytes, but the data has 8",
        ),
        ({"dtype": "DT_INT8", "tensor_shape": shape(1), "int_val": [128]}, "input 'x': a value"),
        (
            {"dtype": "DT_STRING", "tensor_shape": shape(1), "tensor_content": b"\xff" * 1000},
            "does not hold 1 strings",
        ),
        (
            {"dtype": "DT_STRING", "tensor_shape": shape(2**40), "tensor_content": b"\x01a"},
            "strings",
        ),
    ],
)
def test_tensors_that_are_none(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid, match=words):
        predict.to_worker(tensor_proto(**fields), LIMIT)


@pytest.mark.parametrize("value", [{"float_val": [1]}, {"dtype": "DT_STRING", "string_val": [b""]}])
def test_one_value_may_not_stand_for_more_than_the_limit(value: dict[str, Any]) -> None:
    fields = {"dtype": "DT_FLOAT", "tensor_shape": shape(2**60)} | value
    with pytest.raises(TooLarge, match="max_body_size"):
        predict.to_worker(tensor_proto(**fields), LIMIT)


def test_a_scalar_needs_no_shape() -> None:
    headers, body = predict.to_worker(tensor_proto(dtype="DT_FLOAT", float_val=[0.5]), LIMIT)
    document = orjson.loads(body[: int(dict(headers)[JSON_SIZE])])
    assert document["inputs"][0]["shape"] == []
    assert body.endswith(np.float32(0.5).tobytes())


SIGNATURES = [
    Signature("texts", (TensorInfo("e", "string", (None,)),), (), True, "classify"),
    Signature("numbers", (TensorInfo("e", "float32", (None,)),), (), True, "classify"),
]


def test_examples_for_another_signature() -> None:
    given = predict.SCHEMA.messages.Input()
    given.example_list.examples.append(b"")
    with pytest.raises(Invalid, match="'serving_default' for classify; it has: texts, numbers"):
        examples.to_worker(given, "classify", "", SIGNATURES)
    with pytest.raises(Invalid, match="'texts' for regress; it has: none"):
        examples.to_worker(given, "regress", "texts", SIGNATURES)
    with pytest.raises(Invalid, match="does not take serialised examples"):
        examples.to_worker(given, "classify", "numbers", SIGNATURES)
    examples.to_worker(given, "classify", "texts", SIGNATURES)


@pytest.mark.parametrize(
    "tensors",
    [
        [],
        [Tensor("scores", "FP32", [1], b"1234")],
        [Tensor("scores", "INT32", [1, 1], b"1234")],
        [Tensor("classes", "FP32", [1, 1], b"1234")],
        [
            Tensor("classes", BYTES, [1, 1], to_raw(BYTES, [b"a"])),
            Tensor("scores", "FP32", [1], b""),
        ],
    ],
)
def test_outputs_that_are_no_classes(tensors: list[Tensor]) -> None:
    with pytest.raises(Invalid, match="the model gives no"):
        examples.classified(answer_of(*tensors))


@pytest.mark.parametrize(
    "tensors",
    [
        [],
        [Tensor("outputs", "FP32", [], b"1234")],
        [Tensor("outputs", "FP32", [1, 2], bytes(8))],
        [Tensor("outputs", BYTES, [1], to_raw(BYTES, [b"a"]))],
    ],
)
def test_outputs_that_are_no_values(tensors: list[Tensor]) -> None:
    with pytest.raises(Invalid, match="the model gives no"):
        examples.regressed(answer_of(*tensors))
