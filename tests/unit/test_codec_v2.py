"""KServe V2 bodies: JSON, and binary tensors beside it, both ways."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from modelsup.worker.codecs import v2
from modelsup.worker.codecs.base import BadInput, Request
from modelsup.worker.codecs.dtypes import V2_DATATYPES
from modelsup.worker.contract import Signature, TensorInfo

Array = np.ndarray[Any, Any]

X = TensorInfo("x", "float32", (None, None))
TEXT = TensorInfo("text", "string", (None,))
Y = TensorInfo("y", "float32", (None, None))
Z = TensorInfo("z", "string", (None,))
NUMERIC = {name: datatype for name, datatype in V2_DATATYPES.items() if name != "string"}


def signatures(*inputs: TensorInfo) -> dict[str, Signature]:
    return {
        name: Signature(name, inputs, (Y, Z), batchable=True)
        for name in ("serving_default", "other")
    }


def decode(document: Any, *inputs: TensorInfo, binary: bytes | None = None) -> Request:
    text = json.dumps(document).encode()
    if binary is None:
        return v2.decode(text, None, signatures(*inputs))
    return v2.decode(text + binary, len(text), signatures(*inputs))


def tensor(name: str = "x", datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [1, 2], **more}


def request_for(**outputs: bool) -> Request:
    wanted = {name: v2.Wanted(binary) for name, binary in outputs.items()}
    return Request("serving_default", {}, None, {"id": None, "outputs": wanted})


def parsed(answer: v2.Answer) -> tuple[Any, bytes]:
    """Return the JSON of an answer, and the binary data behind it."""
    body = b"".join(answer.buffers)
    size = len(body) if answer.json_size is None else answer.json_size
    return json.loads(body[:size]), body[size:]


@pytest.mark.parametrize("data", [[1, 2.5], [[1, 2.5]]])
def test_data_is_flat_or_nested(data: Any) -> None:
    request = decode({"inputs": [tensor(data=data)]}, X)
    assert request.rows == 1
    assert request.inputs["x"].dtype == np.float32
    assert request.inputs["x"].tolist() == [[1, 2.5]]


def test_strings_and_several_inputs() -> None:
    text = {"name": "text", "datatype": "BYTES", "shape": [1], "data": ["é"]}
    request = decode({"inputs": [text, tensor(data=[1, 2])]}, X, TEXT)
    assert request.inputs["text"].tolist() == ["é".encode()]


def test_empty_tensors_have_their_shape() -> None:
    request = decode({"inputs": [tensor(shape=[0, 7], data=[])]}, X)
    assert request.rows == 0
    assert request.inputs["x"].shape == (0, 7)


def test_another_numeric_datatype_is_cast_if_the_values_fit() -> None:
    request = decode({"inputs": [tensor(datatype="INT64", data=[1, 2])]}, X)
    assert request.inputs["x"].dtype == np.float32
    with pytest.raises(BadInput, match=r"'x' .*float32.*got string"):
        decode({"inputs": [tensor(datatype="BYTES", data=["1", "2"])]}, X)


def test_a_parameter_chooses_the_signature() -> None:
    document = {"parameters": {"signature_name": "other"}, "inputs": [tensor(data=[1, 2])]}
    assert decode(document, X).signature == "other"


def test_binary_numbers_are_not_copied() -> None:
    document = {"inputs": [tensor(parameters={"binary_data_size": 8})]}
    text = json.dumps(document).encode()
    body = text + struct.pack("<2f", 1.5, math.nan)
    array = v2.decode(body, len(text), signatures(X)).inputs["x"]
    assert np.shares_memory(array, np.frombuffer(body, np.uint8))
    np.testing.assert_array_equal(array, [[1.5, math.nan]])


def test_binary_data_stands_in_the_order_of_the_inputs() -> None:
    document = {
        "inputs": [
            tensor("text", "BYTES", shape=[2], parameters={"binary_data_size": 11}),
            tensor("ids", "INT8", shape=[2], data=[5, 6]),
            tensor(shape=[2, 1], parameters={"binary_data_size": 8}),
        ]
    }
    binary = b"\3\0\0\0a\0\0" + b"\0\0\0\0" + bytes(8)
    request = decode(document, X, TensorInfo("ids", "int8", (None,)), TEXT, binary=binary)
    assert request.inputs["text"].tolist() == [b"a\0\0", b""]
    assert request.inputs["ids"].tolist() == [5, 6]
    assert request.inputs["x"].tolist() == [[0], [0]]


SIZE_8 = {"binary_data_size": 8}


@pytest.mark.parametrize(
    ("document", "binary", "message"),
    [
        ([], None, "must be a JSON object"),
        ({}, None, "missing input x"),
        ({"inputs": {}}, None, '"inputs" must be a list'),
        ({"inputs": ["x"]}, None, 'an object with a "name"'),
        ({"inputs": [tensor(data=[1, 2])] * 2}, None, "names 'x' twice"),
        ({"inputs": [tensor("w", data=[1, 2])]}, None, "missing input x"),
        ({"inputs": [tensor()]}, None, 'either "data" or'),
        ({"inputs": [tensor(data=[1, 2], parameters=SIZE_8)]}, bytes(8), 'either "data" or'),
        ({"inputs": [tensor(datatype="FP8", data=[1, 2])]}, None, "'FP8' is none of BF16, BOOL"),
        ({"inputs": [tensor(datatype=[], data=[1, 2])]}, None, "is none of"),
        ({"inputs": [tensor(shape=[2, -1], data=[1, 2])]}, None, "must be a list of sizes"),
        ({"inputs": [tensor(shape=[True, 2], data=[1, 2])]}, None, "must be a list of sizes"),
        ({"inputs": [tensor(shape=[1] * 65, data=[1])]}, None, "must be a list of sizes"),
        ({"inputs": [tensor(shape=None, data=[1, 2])]}, None, "must be a list of sizes"),
        ({"inputs": [tensor(shape=[0, 2**62, 4], data=[])]}, None, "too large"),
        ({"inputs": [tensor(shape=[2**62] * 64, data=[])]}, None, "data has 0"),
        ({"inputs": [tensor(data=[1, 2, 3])]}, None, "takes 2 elements, but the data has 3"),
        ({"inputs": [tensor(shape=[2], data=[1, 2])]}, None, "'x' .*got shape"),
        ({"inputs": [tensor(datatype="UINT8", data=[1, 300])]}, None, "uint8.*300 is out of"),
        ({"inputs": [tensor(parameters=SIZE_8)]}, None, "0 bytes are left.*Content-Length"),
        ({"inputs": [tensor(parameters=SIZE_8)]}, bytes(7), "7 bytes are left"),
        ({"inputs": [tensor(parameters=SIZE_8)]}, bytes(9), "1 bytes of binary data belong to no"),
        ({"inputs": [tensor(parameters={"binary_data_size": 4})]}, bytes(4), "take 8 bytes"),
        ({"inputs": [tensor(parameters={"binary_data_size": "8"})]}, bytes(8), "is '8'"),
        ({"inputs": [tensor(parameters={"shared_memory_region": "r"})]}, None, "shared memory"),
        ({"inputs": [tensor(parameters=[])]}, None, '"parameters" of input'),
        ({"inputs": [tensor(data=[1, 2])], "id": 7}, None, '"id" must be a string'),
        ({"inputs": [tensor(data=[1, 2])], "outputs": [{"name": "w"}]}, None, "has: y, z"),
        (
            {
                "inputs": [tensor(data=[1, 2])],
                "outputs": [{"name": "y", "parameters": {"classification": "2"}}],
            },
            None,
            "classification must be a number",
        ),
    ],
)
def test_what_cannot_be_served_is_said(document: Any, binary: bytes | None, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        decode(document, X, binary=binary)


@pytest.mark.parametrize("size", [0, 3])
def test_the_json_size_must_lie_in_the_body(size: int) -> None:
    with pytest.raises(BadInput, match="the body has 2 bytes"):
        v2.decode(b"{}", size, signatures(X))


@pytest.mark.parametrize(
    "binary", [b"\3\0\0\0ab", b"\1\0\0\0a", b"\1\0\0\0a\1\0\0\0b\0", b"\xff\xff\xff\xff", b"\0"]
)
def test_broken_strings_are_refused(binary: bytes) -> None:
    entry = tensor("text", "BYTES", shape=[2], parameters={"binary_data_size": len(binary)})
    with pytest.raises(BadInput, match="not 2 strings"):
        decode({"inputs": [entry]}, TEXT, binary=binary)


def test_a_binary_bool_is_0_or_1() -> None:
    entry = tensor("b", "BOOL", shape=[2], parameters={"binary_data_size": 2})
    flags = TensorInfo("b", "bool", (None,))
    assert decode({"inputs": [entry]}, flags, binary=b"\0\1").inputs["b"].tolist() == [False, True]
    with pytest.raises(BadInput, match="must be 0 or 1"):
        decode({"inputs": [entry]}, flags, binary=b"\0\2")


def test_an_answer_names_the_model_and_echoes_the_id() -> None:
    request = decode({"inputs": [tensor(data=[1, 2])], "id": "42"}, X)
    outputs: dict[str, Array] = {
        "y": np.array([[1.5, math.nan]], np.float32),
        "z": np.array([b"a"]),
    }
    answer = v2.encode(request, outputs, "m", "3")
    assert answer.json_size is None
    document, _ = parsed(answer)
    assert math.isnan(document["outputs"][0]["data"].pop())
    assert document == {
        "model_name": "m",
        "model_version": "3",
        "id": "42",
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [1.5]},
            {"name": "z", "datatype": "BYTES", "shape": [1], "data": ["a"]},
        ],
    }


@pytest.mark.parametrize(
    ("parameters", "outputs", "expected"),
    [
        ({}, None, {"y": False, "z": False}),
        ({"binary_data_output": True}, None, {"y": True, "z": True}),
        ({"binary_data_output": True}, [], {"y": True, "z": True}),
        ({}, [{"name": "z"}], {"z": False}),
        ({}, [{"name": "z", "parameters": {"binary_data": True}}], {"z": True}),
        (
            {"binary_data_output": True},
            [{"name": "z", "parameters": {"binary_data": False}}, {"name": "y"}],
            {"z": False, "y": True},
        ),
    ],
)
def test_the_request_says_which_outputs_and_how(
    parameters: Any, outputs: Any, expected: dict[str, bool]
) -> None:
    document = {"parameters": parameters, "inputs": [tensor(data=[1, 2])], "outputs": outputs}
    request = decode(document, X)
    arrays: dict[str, Array] = {"y": np.ones((1, 2), np.float32), "z": np.array([b"ab"])}
    answer, _ = parsed(v2.encode(request, arrays, "m", "1"))
    assert [(o["name"], "data" not in o) for o in answer["outputs"]] == list(expected.items())


def test_binary_outputs_share_the_tensors_memory() -> None:
    array = np.arange(4, dtype=np.float32).reshape(2, 2)
    answer = v2.encode(request_for(z=False, y=True), {"y": array, "z": np.array([b"a"])}, "m", "1")
    assert np.shares_memory(np.frombuffer(answer.buffers[1], np.uint8), array)
    document, binary = parsed(answer)
    assert document["outputs"][1]["parameters"] == {"binary_data_size": 16}
    assert binary == array.tobytes()


def test_bytes_that_are_not_text_need_binary_data() -> None:
    arrays: dict[str, Array] = {"z": np.array([b"\xff"], dtype=object)}
    with pytest.raises(BadInput, match="ask for it as binary data"):
        v2.encode(request_for(z=False), arrays, "m", "1")
    assert parsed(v2.encode(request_for(z=True), arrays, "m", "1"))[1] == b"\1\0\0\0\xff"


@pytest.mark.parametrize("binary", [True, False])
def test_a_type_without_a_datatype_is_refused(binary: bool) -> None:
    with pytest.raises(BadInput, match="complex64"):
        v2.encode(request_for(y=binary), {"y": np.zeros(1, np.complex64)}, "m", "1")


def as_request(answer: v2.Answer) -> tuple[bytes, int | None]:
    """Turn an answer into a request that sends its outputs as inputs."""
    text, *buffers = answer.buffers
    document = json.loads(bytes(text))
    text = json.dumps({"inputs": document["outputs"]}).encode()
    return b"".join([text, *buffers]), None if answer.json_size is None else len(text)


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("dtype", NUMERIC)
@given(data=st.data())
@settings(deadline=None, max_examples=15)
def test_numbers_round_trip(dtype: str, binary: bool, data: st.DataObject) -> None:
    shape = data.draw(nps.array_shapes(min_dims=0, max_dims=4, min_side=0))
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
        array = data.draw(nps.arrays("int8", shape)).astype(dtype)
    else:
        array = data.draw(nps.arrays(dtype, shape))
    body, size = as_request(v2.encode(request_for(x=binary), {"x": array}, "m", "1"))
    known = {"serving_default": Signature("", (TensorInfo("x", dtype, shape),), (), False)}
    decoded = v2.decode(body, size, known).inputs["x"]
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


@pytest.mark.parametrize("binary", [True, False])
@given(data=st.data())
@settings(deadline=None)
def test_strings_round_trip(binary: bool, data: st.DataObject) -> None:
    strings = st.binary() if binary else st.text().map(str.encode)
    values = data.draw(st.lists(strings))
    array = np.empty(len(values), dtype=object)
    array[:] = values
    body, size = as_request(v2.encode(request_for(text=binary), {"text": array}, "m", "1"))
    assert v2.decode(body, size, signatures(TEXT)).inputs["text"].tolist() == values


KEYS = st.sampled_from(
    ["inputs", "outputs", "id", "parameters", "name", "shape", "datatype", "data"]
)
NAMES = st.sampled_from(["x", "text", "y", *V2_DATATYPES.values(), "binary_data_size"])
LEAVES = st.none() | st.booleans() | st.integers(-2, 9) | st.integers() | st.floats() | NAMES
JSON = st.recursive(
    LEAVES, lambda j: st.lists(j, max_size=3) | st.dictionaries(KEYS | NAMES, j, max_size=4)
)
TENSORS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["x", "text"]),
        "datatype": st.sampled_from([*V2_DATATYPES.values()]),
        "shape": st.lists(st.integers(0, 3), max_size=3) | JSON,
    },
    optional={
        "data": st.lists(LEAVES, max_size=4) | JSON,
        "parameters": st.fixed_dictionaries({"binary_data_size": st.integers(-1, 9)}) | JSON,
    },
)


@given(
    document=st.fixed_dictionaries(
        {"inputs": st.lists(TENSORS, max_size=3) | JSON}, optional={"outputs": JSON, "id": JSON}
    )
    | JSON,
    binary=st.none() | st.binary(max_size=9),
)
@settings(deadline=None, max_examples=300)
def test_anything_is_served_or_refused(document: Any, binary: bytes | None) -> None:
    for inputs in ((X,), (TEXT,), (X, TEXT)):
        try:
            request = decode(document, *inputs, binary=binary)
        except BadInput:
            continue
        assert request.inputs.keys() == {i.name for i in inputs}


@given(body=st.binary(), size=st.none() | st.integers(-1, 20))
@settings(deadline=None)
def test_any_bytes_are_refused(body: bytes, size: int | None) -> None:
    with pytest.raises(BadInput):
        v2.decode(body, size, signatures(X))
