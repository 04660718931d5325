"""Triton's own Python client, synchronous and asynchronous, against a supervisor."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_async
from tritonclient.utils import InferenceServerException

from tests.conftest import supervisors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

Array = np.ndarray[Any, Any]
Headers = dict[str, str]

DATATYPES = {
    "BOOL": "bool",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
    "BYTES": "string",
}
VALUES = {
    "BOOL": [True, False, True],
    "UINT64": [0, 1, 2**64 - 1],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "INT8": [-128, 0, 127],
    "FP16": [np.nan, -np.inf, 0.5],
    "FP32": [np.nan, np.inf, 1e-40],
    "FP64": [np.nan, -np.inf, 1e-310],
    "BF16": [np.nan, np.inf, 0.5],
    "BYTES": [b"", "ö".encode(), b"two\nlines"],
}
MODELS = {
    "types": {d: {"dtype": t, "shape": [None]} for d, t in DATATYPES.items()},
    "scores": {"y": {"dtype": "float32", "shape": [None, 4]}},
    "wide": {"x": {"dtype": "float32", "shape": [None, None]}},
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The host and port of a supervisor over a folder with the models."""
    models = tmp_path_factory.mktemp("models")
    for name, inputs in MODELS.items():
        (models / f"{name}.echo").write_text(json.dumps({"inputs": inputs}))
    with supervisors(tmp_path_factory.mktemp("triton") / "home") as start:
        yield start("--models-dir", str(models)).url.removeprefix("http://")


@pytest.fixture
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    """A synchronous client; all models are loaded."""
    with triton.InferenceServerClient(address) as client:
        for model in MODELS:
            client.load_model(model)
        yield client


def tensor(name: str, array: Array, datatype: str, *, binary: bool = True) -> triton.InferInput:
    """Return an input with its data."""
    given = triton.InferInput(name, list(array.shape), datatype)
    given.set_data_from_numpy(array, binary_data=binary)
    return given


def values_of(datatype: str) -> Array:
    """Return three elements that are hard to carry."""
    kind: Any = DATATYPES[datatype]
    if datatype == "BF16":
        kind = ml_dtypes.bfloat16
    elif datatype == "BYTES":
        kind = np.object_
    return np.array(VALUES.get(datatype, [0, 1, 7]), kind)


def everything(*, binary: bool) -> list[triton.InferInput]:
    """Return an input of each datatype; the client writes 16-bit floats in binary alone."""
    return [
        tensor(name, values_of(name), name, binary=binary or name in ("FP16", "BF16"))
        for name in DATATYPES
    ]


def test_the_server_says_what_it_is(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    metadata = client.get_server_metadata()
    assert metadata["name"] == "modelsup"
    for extension in ("binary_tensor_data", "classification", "model_configuration", "statistics"):
        assert extension in metadata["extensions"]


def test_the_repository(client: triton.InferenceServerClient) -> None:
    assert client.is_model_ready("scores")
    assert client.is_model_ready("scores", "1")
    index = {entry["name"]: entry for entry in client.get_model_repository_index()}
    assert index["scores"] == {"name": "scores", "version": "1", "state": "READY", "reason": ""}

    client.unload_model("scores", unload_dependents=True)

    assert not client.is_model_ready("scores")
    index = {entry["name"]: entry["state"] for entry in client.get_model_repository_index()}
    assert index["scores"] == "UNAVAILABLE"
    client.load_model("scores")
    assert client.is_model_ready("scores")
    with pytest.raises(InferenceServerException, match="nope"):
        client.load_model("nope")
    with pytest.raises(InferenceServerException, match="takes no parameters"):
        client.load_model("scores", config="{}")


def test_metadata_and_configuration(client: triton.InferenceServerClient) -> None:
    metadata = client.get_model_metadata("scores", "1")
    assert metadata["inputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 4]}]
    config = client.get_model_config("scores")
    assert config["max_batch_size"] == 64
    assert config["input"] == [{"name": "y", "data_type": "TYPE_FP32", "dims": [4]}]
    with pytest.raises(InferenceServerException, match="nope"):
        client.get_model_config("nope")


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_every_datatype(
    client: triton.InferenceServerClient, binary_in: bool, binary_out: bool
) -> None:
    wanted = [triton.InferRequestedOutput(d, binary_data=binary_out) for d in DATATYPES]
    if not binary_out:  # the client reads no 16-bit floats from JSON
        wanted = [o for o in wanted if o.name() not in ("FP16", "BF16")]
    answer = client.infer("types", everything(binary=binary_in), outputs=wanted)
    for output in wanted:
        expected = values_of(output.name())
        found = answer.as_numpy(output.name())
        if output.name() == "BYTES" and not binary_out:
            found = np.array([text.encode() for text in found], np.object_)
        if output.name() == "BF16":  # numpy does not know its NaN
            expected, found = expected.astype(np.float32), found.astype(np.float32)
        np.testing.assert_array_equal(found, expected)
        assert answer.get_output(output.name())["datatype"] == output.name()


def test_id_parameters_and_outputs(client: triton.InferenceServerClient) -> None:
    scores = np.array([[0.5, 4, 2, 1]], np.float32)
    answer = client.infer(
        "scores",
        [tensor("y", scores, "FP32")],
        request_id="seven",
        model_version="1",
        sequence_id=3,
        sequence_start=True,
        priority=1,
        timeout=1_000_000,
        parameters={"anything": "goes"},
    )
    told = answer.get_response()
    assert (told["id"], told["model_name"], told["model_version"]) == ("seven", "scores", "1")
    np.testing.assert_array_equal(answer.as_numpy("y"), scores)


@pytest.mark.parametrize("binary", [True, False])
def test_classification(client: triton.InferenceServerClient, binary: bool) -> None:
    scores = np.array([[0.5, 4, 2, 1], [9, 8, 7, 6]], np.float32)
    output = triton.InferRequestedOutput("y", binary_data=binary, class_count=2)
    answer = client.infer("scores", [tensor("y", scores, "FP32")], outputs=[output])
    found = [i if isinstance(i, str) else i.decode() for i in answer.as_numpy("y").reshape(-1)]
    assert found == ["4.0:1", "2.0:2", "9.0:0", "8.0:1"]
    assert answer.get_output("y")["shape"] == [2, 2]


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
@pytest.mark.parametrize("binary", [True, False])
def test_compressed_both_ways(
    client: triton.InferenceServerClient, algorithm: str, binary: bool
) -> None:
    x = np.tile(np.arange(8, dtype=np.float32), (32, 100))
    output = triton.InferRequestedOutput("x", binary_data=binary)
    answer = client.infer(
        "wide",
        [tensor("x", x, "FP32", binary=binary)],
        outputs=[output],
        request_compression_algorithm=algorithm,
        response_compression_algorithm=algorithm,
    )
    np.testing.assert_array_equal(answer.as_numpy("x"), x)


def test_statistics_count_rows_and_calls(client: triton.InferenceServerClient) -> None:
    client.unload_model("scores")
    with pytest.raises(InferenceServerException, match="is not loaded"):
        client.get_inference_statistics("scores")
    client.load_model("scores")
    for rows in (1, 3, 3):
        client.infer("scores", [tensor("y", np.zeros((rows, 4), np.float32), "FP32")])
    with pytest.raises(InferenceServerException, match="got shape"):
        client.infer("scores", [tensor("y", np.zeros((1, 5), np.float32), "FP32")])

    (told,) = client.get_inference_statistics("scores")["model_stats"]

    assert (told["name"], told["version"]) == ("scores", "1")
    assert (told["inference_count"], told["execution_count"]) == (7, 3)
    assert told["last_inference"] > 1.6e12  # milliseconds
    steps = told["inference_stats"]
    assert (steps["success"]["count"], steps["fail"]["count"]) == (3, 0)
    assert 0 < steps["compute_infer"]["ns"] <= steps["success"]["ns"]
    sizes = {size["batch_size"]: size["compute_infer"]["count"] for size in told["batch_stats"]}
    assert sizes == {1: 1, 3: 2}
    assert client.get_inference_statistics("scores", "1")["model_stats"] == [told]
    everyone = client.get_inference_statistics()["model_stats"]
    assert sorted(one["name"] for one in everyone) == sorted(MODELS)


def test_requests_in_the_background(client: triton.InferenceServerClient) -> None:
    rows = [np.full((1, 4), number, np.float32) for number in range(5)]
    waiting = [client.async_infer("scores", [tensor("y", row, "FP32")]) for row in rows]
    for row, request in zip(rows, waiting, strict=True):
        np.testing.assert_array_equal(request.get_result().as_numpy("y"), row)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (tensor("y", np.zeros((1, 5), np.float32), "FP32"), r"'y'.*of shape \[\?, 4\].*\[1, 5\]"),
        (tensor("z", np.zeros((1, 4), np.float32), "FP32"), "missing input y"),
        (tensor("y", np.zeros((1, 4), np.bool_), "BOOL"), "'y'.*expected float32.*got bool"),
    ],
)
def test_refused_requests_say_why(
    client: triton.InferenceServerClient, given: triton.InferInput, expected: str
) -> None:
    with pytest.raises(InferenceServerException, match=expected) as error:
        client.infer("scores", [given])
    assert error.value.status() == "400"


@pytest.mark.parametrize(
    "ask",
    [
        lambda client: client.get_trace_settings(),
        lambda client: client.get_log_settings(),
        lambda client: client.get_system_shared_memory_status(),
    ],
)
def test_what_is_not_served_is_no_path(
    client: triton.InferenceServerClient, ask: Callable[[triton.InferenceServerClient], object]
) -> None:
    with pytest.raises(InferenceServerException, match="there is no path"):
        ask(client)


def test_the_asynchronous_client(address: str) -> None:
    async def main(client: triton_async.InferenceServerClient) -> None:
        await client.load_model("scores")
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("scores")
        assert (await client.get_server_metadata())["name"] == "modelsup"
        assert (await client.get_model_metadata("scores"))["platform"] == "echo"
        assert (await client.get_model_config("scores"))["name"] == "scores"
        assert {e["name"] for e in await client.get_model_repository_index()} == set(MODELS)
        rows = [np.full((1, 4), number, np.float32) for number in range(9)]
        packed: Headers = {
            "request_compression_algorithm": "gzip",
            "response_compression_algorithm": "deflate",
        }
        answers = await asyncio.gather(
            *(client.infer("scores", [tensor("y", row, "FP32")], **packed) for row in rows)
        )
        for row, answer in zip(rows, answers, strict=True):
            np.testing.assert_array_equal(answer.as_numpy("y"), row)
        (told,) = (await client.get_inference_statistics("scores"))["model_stats"]
        assert told["inference_count"] >= len(rows)
        await client.unload_model("scores")
        assert not await client.is_model_ready("scores")

    run_with(address, main)


def run_with(
    address: str, main: Callable[[triton_async.InferenceServerClient], Awaitable[None]]
) -> None:
    """Run a coroutine with an asynchronous client."""

    async def with_client() -> None:
        async with triton_async.InferenceServerClient(address) as client:
            await main(client)

    asyncio.run(with_client())
