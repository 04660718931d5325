"""Triton's own gRPC client, synchronous and asynchronous, and V2's messages as they are."""

from __future__ import annotations

import asyncio
import json
import queue
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_async
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.conftest import supervisors
from tests.e2e.test_triton_client import DATATYPES, MODELS, values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = np.ndarray[Any, Any]

CONTENTS = {
    "BOOL": "bool_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
TYPED = {"typed": {d: {"dtype": DATATYPES[d], "shape": [None]} for d in CONTENTS}}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a supervisor over a folder with the models serves gRPC."""
    models = tmp_path_factory.mktemp("models")
    for name, inputs in (MODELS | TYPED).items():
        (models / f"{name}.echo").write_text(json.dumps({"inputs": inputs}))
    with supervisors(tmp_path_factory.mktemp("triton") / "home") as start:
        supervisor = start("--models-dir", str(models), "--grpc-port", "0")
        yield str(supervisor.client.status().grpc)


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    """A synchronous client."""
    with triton.InferenceServerClient(address) as client:
        yield client


@pytest.fixture
def stub(address: str) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    """The service without a client's own code."""
    with grpc.insecure_channel(address) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def tensor(name: str, array: Array, datatype: str) -> triton.InferInput:
    """Return an input with its data."""
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


def assert_same(found: Array, datatype: str) -> None:
    """Check that all elements of an input came back as they were."""
    expected = values_of(datatype)
    if datatype == "BF16":  # numpy does not know its NaN
        expected, found = expected.astype(np.float32), found.astype(np.float32)
    np.testing.assert_array_equal(found, expected)


SCORES = np.array([[0.5, 4, 2, 1]], np.float32)
SCORES_INPUT = partial(tensor, "y", SCORES, "FP32")


def test_the_server_says_what_it_is(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata.name == "modelsup"
    assert "statistics" in metadata.extensions


def test_the_repository(client: triton.InferenceServerClient) -> None:
    client.load_model("scores")
    assert client.is_model_ready("scores")
    assert client.is_model_ready("scores", "1")
    index = {entry.name: entry for entry in client.get_model_repository_index().models}
    assert (index["scores"].version, index["scores"].state) == ("1", "READY")

    client.unload_model("scores", unload_dependents=True)

    assert not client.is_model_ready("scores")
    index = {entry.name: entry.state for entry in client.get_model_repository_index().models}
    assert index["scores"] == "UNAVAILABLE"
    with pytest.raises(InferenceServerException, match="takes no parameters") as error:
        client.load_model("scores", config="{}")
    assert error.value.status() == "StatusCode.INVALID_ARGUMENT"


def test_metadata_configuration_and_statistics(client: triton.InferenceServerClient) -> None:
    client.load_model("scores")
    (told,) = client.get_model_metadata("scores", "1").inputs
    assert (told.name, told.datatype, list(told.shape)) == ("y", "FP32", [-1, 4])
    config = client.get_model_config("scores", as_json=True)["config"]
    assert config["input"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": ["4"]}]
    assert config["max_batch_size"] == 64
    assert "dynamic_batching" in config

    before = client.get_inference_statistics("scores").model_stats[0].inference_count
    client.infer("scores", [SCORES_INPUT()])
    (stats,) = client.get_inference_statistics("scores", "1").model_stats
    assert stats.inference_count == before + 1
    assert stats.inference_stats.success.ns > 0
    assert "scores" in {s.name for s in client.get_inference_statistics().model_stats}


def test_every_datatype(client: triton.InferenceServerClient) -> None:
    given = [tensor(name, values_of(name), name) for name in DATATYPES]
    answer = client.infer("types", given)
    for datatype in DATATYPES:
        assert_same(answer.as_numpy(datatype), datatype)
        assert answer.get_output(datatype).datatype == datatype


def test_chosen_outputs(client: triton.InferenceServerClient) -> None:
    given = [tensor(name, values_of(name), name) for name in DATATYPES]
    wanted = [triton.InferRequestedOutput(name) for name in ("INT8", "BYTES")]
    answer = client.infer("types", given, outputs=wanted)
    assert [output.name for output in answer.get_response().outputs] == ["INT8", "BYTES"]
    assert_same(answer.as_numpy("BYTES"), "BYTES")


def test_typed_contents_are_answered_in_kind(
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
) -> None:
    request = service_pb2.ModelInferRequest(model_name="typed", id="seven")
    for datatype, field in CONTENTS.items():
        values = values_of(datatype).tolist()
        entry = request.inputs.add(name=datatype, datatype=datatype, shape=[len(values)])
        getattr(entry.contents, field).extend(values)
    answer = stub.ModelInfer(request)
    assert answer.id == "seven"
    assert list(answer.raw_output_contents) == []
    for output in answer.outputs:
        found = getattr(output.contents, CONTENTS[output.datatype])
        np.testing.assert_array_equal(list(found), values_of(output.datatype).tolist())


def one_input(
    datatype: str = "FP32", raw: int = 0, **contents: list[Any]
) -> service_pb2.ModelInferRequest:
    """Return a request with one input, and `raw` entries beside it."""
    request = service_pb2.ModelInferRequest(model_name="wide")
    entry = request.inputs.add(name="x", datatype=datatype, shape=[1, 1])
    for field, values in contents.items():
        getattr(entry.contents, field).extend(values)
    request.raw_input_contents.extend([b"\0\0\0\0"] * raw)
    return request


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (one_input(fp64_contents=[1.0]), "FP32 belongs in fp32_contents, not fp64_contents"),
        (one_input("INT8", int_contents=[300]), "input 'x': a value does not fit into INT8"),
        (one_input("FP16", fp32_contents=[1.0]), "FP16 has no contents of its own"),
        (one_input("FP31"), "'FP31' is none of BOOL, "),
        (one_input(), "FP32 of shape [1, 1] takes 4 bytes, but the data has 0"),
        (one_input(raw=2), "raw_input_contents has 2 entries for 1 inputs"),
        (one_input(raw=1, fp32_contents=[1.0]), "contents beside raw_input_contents"),
    ],
)
def test_refused_contents(
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    given: service_pb2.ModelInferRequest,
    words: str,
) -> None:
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(given)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert words in error.value.details()


def test_id_parameters_and_metadata(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
    request = service_pb2.ModelInferRequest(model_name="scores", model_version="1", id="eight")
    request.inputs.add(name="y", datatype="FP32", shape=[1, 4])
    request.raw_input_contents.append(SCORES.tobytes())
    for name, value in (("bool", True), ("int64", -1), ("string", "s"), ("double", 0.5)):
        setattr(request.parameters[name], f"{name}_param", value)
    answer, call = stub.ModelInfer.with_call(request, metadata=[("x-request-id", "r-1")])
    assert (answer.id, answer.model_name, answer.model_version) == ("eight", "scores", "1")
    assert answer.raw_output_contents[0] == SCORES.tobytes()
    trailing = dict(call.trailing_metadata())
    assert trailing["x-request-id"] == "r-1"
    assert trailing["x-modelsup-worker"].startswith("w-")


def test_a_signature_can_be_named(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> None:
    request = service_pb2.ModelInferRequest(model_name="scores")
    request.parameters["signature_name"].string_param = "command"
    entry = request.inputs.add(name="command", datatype="BYTES", shape=[1])
    entry.contents.bytes_contents.append(b"")
    (facts,) = stub.ModelInfer(request).outputs[0].contents.bytes_contents
    assert json.loads(facts)["pid"] > 1


def test_classification(client: triton.InferenceServerClient) -> None:
    output = triton.InferRequestedOutput("y", class_count=2)
    answer = client.infer("scores", [SCORES_INPUT()], outputs=[output])
    assert [i.decode() for i in answer.as_numpy("y").reshape(-1)] == ["4.0:1", "2.0:2"]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compressed(client: triton.InferenceServerClient, algorithm: str) -> None:
    x = np.tile(np.arange(8, dtype=np.float32), (32, 100))
    answer = client.infer("wide", [tensor("x", x, "FP32")], compression_algorithm=algorithm)
    np.testing.assert_array_equal(answer.as_numpy("x"), x)


@pytest.mark.parametrize(
    ("model", "version", "given", "status", "words"),
    [
        ("nope", "", SCORES_INPUT(), "NOT_FOUND", "nope"),
        ("no such", "", SCORES_INPUT(), "NOT_FOUND", "no model can be called 'no such'"),
        ("scores", "7", SCORES_INPUT(), "NOT_FOUND", "7"),
        ("scores", "../1", SCORES_INPUT(), "NOT_FOUND", "no model can be called"),
        (
            "scores",
            "",
            tensor("y", np.zeros((1, 5), np.float32), "FP32"),
            "INVALID_ARGUMENT",
            "[1, 5]",
        ),
        (
            "scores",
            "",
            tensor("z", np.zeros((1, 4), np.float32), "FP32"),
            "INVALID_ARGUMENT",
            "missing input y",
        ),
    ],
)
def test_errors_have_a_code_and_say_why(
    client: triton.InferenceServerClient,
    model: str,
    version: str,
    given: triton.InferInput,
    status: str,
    words: str,
) -> None:
    with pytest.raises(InferenceServerException) as error:
        client.infer(model, [given], model_version=version)
    assert error.value.status() == f"StatusCode.{status}"
    assert words in error.value.message()


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get_trace_settings(),
        lambda client: client.get_log_settings(),
        lambda client: client.get_system_shared_memory_status(),
    ],
)
def test_what_is_not_served_is_unimplemented(
    client: triton.InferenceServerClient, ask: Callable[[triton.InferenceServerClient], object]
) -> None:
    with pytest.raises(InferenceServerException) as error:
        ask(client)
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"


def test_requests_in_the_background(client: triton.InferenceServerClient) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    for number in range(5):
        row = np.full((1, 4), number, np.float32)
        client.async_infer(
            "scores",
            [tensor("y", row, "FP32")],
            callback=lambda result, error: answers.put(error or result.as_numpy("y")[0, 0]),
        )
    assert {float(answers.get(timeout=60)) for _ in range(5)} == {0.0, 1.0, 2.0, 3.0, 4.0}


def test_a_stream_answers_in_order_also_what_is_wrong(
    client: triton.InferenceServerClient,
) -> None:
    answers: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    wrong = tensor("y", np.zeros((1, 5), np.float32), "FP32")
    client.async_stream_infer("scores", [SCORES_INPUT()], request_id="one")
    client.async_stream_infer("scores", [wrong], request_id="two")
    client.async_stream_infer("scores", [SCORES_INPUT()], request_id="three")
    first, second, third = (answers.get(timeout=60) for _ in range(3))
    client.stop_stream()
    assert first[0].get_response().id == "one"
    assert "[1, 5]" in str(second[1])
    assert third[0].get_response().id == "three"
    np.testing.assert_array_equal(third[0].as_numpy("y"), SCORES)


def test_the_asynchronous_client(address: str) -> None:
    async def main() -> None:
        async with triton_async.InferenceServerClient(address) as client:
            await client.load_model("scores")
            assert await client.is_server_live()
            assert await client.is_server_ready()
            assert await client.is_model_ready("scores")
            assert (await client.get_server_metadata()).name == "modelsup"
            assert (await client.get_model_metadata("scores")).platform == "echo"
            assert (await client.get_model_config("scores")).config.name == "scores"
            index = await client.get_model_repository_index()
            assert {entry.name for entry in index.models} == set(MODELS | TYPED)
            rows = [np.full((1, 4), number, np.float32) for number in range(9)]
            answers = await asyncio.gather(
                *(client.infer("scores", [tensor("y", row, "FP32")]) for row in rows)
            )
            for row, answer in zip(rows, answers, strict=True):
                np.testing.assert_array_equal(answer.as_numpy("y"), row)
            (told,) = (await client.get_inference_statistics("scores")).model_stats
            assert told.inference_count >= len(rows)

            async def stream() -> Any:
                for row in rows:
                    yield {"model_name": "scores", "inputs": [tensor("y", row, "FP32")]}

            streamed = [result async for result, _ in client.stream_infer(stream())]
            for row, answer in zip(rows, streamed, strict=True):
                np.testing.assert_array_equal(answer.as_numpy("y"), row)
            await client.unload_model("scores")
            assert not await client.is_model_ready("scores")

    asyncio.run(main())
