"""gRPC calls while things happen: deadlines, hang-ups, swaps, the end; ports; what stays behind."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import InferenceServerException

from tests.conftest import wait_until
from tests.process.test_processes_limits import start_in_vain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Supervisor

FLAGS = ("--grpc-port", "0")
GRACE = 0.3  # seconds: a deadline that passes while the model is held at a gate
TEXT = {"inputs": {"command": {"dtype": "string", "shape": [None]}}}


@pytest.fixture
def stub(shared_supervisor: Supervisor) -> Iterator[service_pb2_grpc.GRPCInferenceServiceStub]:
    with channel_to(shared_supervisor) as channel:
        yield service_pb2_grpc.GRPCInferenceServiceStub(channel)


def channel_to(supervisor: Supervisor) -> grpc.Channel:
    return grpc.insecure_channel(str(supervisor.client.status().grpc))


def number(model: str, value: float = 1.0) -> service_pb2.ModelInferRequest:
    """Return a request with one number."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.inputs.add(name="x", datatype="FP32", shape=[1, 1])
    request.raw_input_contents.append(np.float32(value).tobytes())
    return request


def command(model: str, text: str) -> service_pb2.ModelInferRequest:
    """Return a request that runs a command in an echo model's worker."""
    request = service_pb2.ModelInferRequest(model_name=model)
    request.parameters["signature_name"].string_param = "command"
    entry = request.inputs.add(name="command", datatype="BYTES", shape=[1])
    entry.contents.bytes_contents.append(text.encode())
    return request


def in_flight(supervisor: Supervisor) -> int:
    return sum(worker.in_flight for worker in supervisor.client.workers())


def test_a_deadline_ends_the_call_and_takes_it_back(
    shared_supervisor: Supervisor,
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    fifo: Callable[..., Path],
) -> None:
    shared_supervisor.client.load("m", runtime="echo")
    gate = fifo()
    held = os.open(gate, os.O_RDWR)  # does not wait for the worker, which may not come so far
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(command("m", f"gate:{gate}"), timeout=GRACE)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    shared_supervisor.until(lambda: in_flight(shared_supervisor) == 0)
    os.close(held)
    assert stub.ModelInfer(number("m")).raw_output_contents[0] == np.float32(1).tobytes()


def test_a_client_that_cancels_is_counted_out(
    shared_supervisor: Supervisor,
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    fifo: Callable[..., Path],
) -> None:
    shared_supervisor.client.load("m", runtime="echo")
    gate = fifo()
    call = stub.ModelInfer.future(command("m", f"gate:{gate}"))
    with gate.open("wb"):  # it has arrived
        assert in_flight(shared_supervisor) == 1
        call.cancel()
        shared_supervisor.until(lambda: in_flight(shared_supervisor) == 0)
    with pytest.raises(grpc.FutureCancelledError):
        call.result()


def test_a_deadline_takes_back_the_wish_to_load(
    shared_supervisor: Supervisor,
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    echo_model: Callable[..., str],
) -> None:
    client = shared_supervisor.client
    client.add_model("slow", echo_model("slow", on_load=["hang"]))
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(number("slow"), timeout=GRACE)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    shared_supervisor.until(lambda: client.model("slow").state == "unloaded")


def test_a_full_queue_refuses(
    shared_supervisor: Supervisor,
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    fifo: Callable[..., Path],
) -> None:
    shared_supervisor.client.load("m", runtime="echo", max_concurrency=1, max_queue=0)
    gate = fifo()
    call = stub.ModelInfer.future(command("m", f"gate:{gate}"))
    with gate.open("wb"):
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(number("m"))
        assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        trailing = dict(error.value.trailing_metadata())
        assert (trailing["x-modelsup-error"], trailing["retry-after"]) == ("queue_full", "1")
    assert call.result(60).model_name == "m"
    assert stub.ModelInfer(number("m")).model_name == "m"


def test_what_is_under_way_is_bounded_in_bytes(
    start_supervisor: Callable[..., Supervisor], fifo: Callable[..., Path]
) -> None:
    """Large messages that wait for a model take memory, however few they are."""
    supervisor = start_supervisor(*FLAGS, "--max-body-size", "1MB")
    supervisor.client.load("m", runtime="echo", max_concurrency=1)
    gate = fifo()
    held = os.open(gate, os.O_RDWR)
    large = number("m")
    large.inputs[0].shape[:] = [1, 200_000]
    large.raw_input_contents[0] = bytes(800_000)
    with channel_to(supervisor) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        running = stub.ModelInfer.future(command("m", f"gate:{gate}"))
        supervisor.until(lambda: in_flight(supervisor) == 1)
        waiting = [stub.ModelInfer.future(large) for _ in range(4)]
        supervisor.until(lambda: supervisor.client.model("m").waiting == 4)
        with pytest.raises(grpc.RpcError) as refused:
            stub.ModelInfer(large)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "3.2 MB are under way over gRPC" in refused.value.details()
        assert dict(refused.value.trailing_metadata())["retry-after"] == "1"
        small = stub.ModelInfer.future(number("m"))
        os.write(held, b"x")
        os.close(held)
        assert all(call.result().model_name == "m" for call in (running, *waiting, small))
        assert stub.ModelInfer(large).model_name == "m"


def test_a_worker_that_dies_is_told_with_its_cause(
    shared_supervisor: Supervisor, stub: service_pb2_grpc.GRPCInferenceServiceStub
) -> None:
    shared_supervisor.client.load("m", runtime="echo")
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(command("m", "crash"))
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "SIGSEGV" in error.value.details()
    trailing = dict(error.value.trailing_metadata())
    assert trailing["x-modelsup-error"] == "worker_died"
    assert int(trailing["retry-after"]) > 0


def test_a_model_that_cannot_be_loaded(
    shared_supervisor: Supervisor,
    stub: service_pb2_grpc.GRPCInferenceServiceStub,
    echo_model: Callable[..., str],
) -> None:
    shared_supervisor.client.add_model("bad", echo_model("bad", on_load=["fail:" + "ä" * 9000]))
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(number("bad"))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "ää" in error.value.details()


def test_silence_is_a_deadline_of_ours(
    start_supervisor: Callable[..., Supervisor], fifo: Callable[..., Path]
) -> None:
    supervisor = start_supervisor(*FLAGS, "--request-timeout", f"{GRACE}s")
    supervisor.client.load("m", runtime="echo")
    gate = fifo()
    with channel_to(supervisor) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as error:
            stub.ModelInfer(command("m", f"gate:{gate}"))
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert "the worker gave no answer for 0.3 s" in error.value.details()


def test_a_message_over_the_limit(start_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = start_supervisor(*FLAGS, "--max-body-size", "100000")
    supervisor.client.load("m", runtime="echo")
    with channel_to(supervisor) as channel:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        large = number("m")
        large.inputs[0].shape[:] = [1, 30_000]
        large.raw_input_contents[0] = bytes(120_000)
        for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
            with pytest.raises(grpc.RpcError) as error:
                stub.ModelInfer(large, compression=compression)
            assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        large.inputs[0].shape[:] = [1, 20_000]
        large.raw_input_contents[0] = bytes(80_000)
        assert len(stub.ModelInfer(large).raw_output_contents[0]) == 80_000


def test_two_clients_while_models_are_swapped(shared_supervisor: Supervisor) -> None:
    """A swap loses no call of another client, whichever model it is on."""
    client = shared_supervisor.client
    for name in ("a", "b"):
        client.load(name, runtime="echo")
    over = threading.Event()

    def ask(model: str) -> int:
        count = 0
        with channel_to(shared_supervisor) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            while not over.is_set():
                count += 1
                answer = stub.ModelInfer(number(model, count), timeout=60)
                assert answer.raw_output_contents[0] == np.float32(count).tobytes()
        return count

    with ThreadPoolExecutor(2) as pool:
        asking = [pool.submit(ask, name) for name in ("a", "b")]
        try:
            for _ in range(4):
                for name in ("a", "b"):
                    client.swap("john", name)
        finally:
            over.set()
        assert all(asked.result(60) > 0 for asked in asking)


def test_a_clients_current_model(
    shared_supervisor: Supervisor, stub: service_pb2_grpc.GRPCInferenceServiceStub
) -> None:
    client = shared_supervisor.client
    metadata = [("x-modelsup-client", "john")]
    for name in ("a", "b"):
        client.load(name, runtime="echo")
        client.swap("john", name)
        used = client.clients()[0].requests
        assert stub.ModelInfer(number(""), metadata=metadata).model_name == name
        assert client.clients()[0].requests == used + 1
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(number("a"), metadata=metadata)
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    client.release("john")
    with pytest.raises(grpc.RpcError) as error:
        stub.ModelInfer(number(""), metadata=metadata)
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    assert "john holds no model" in error.value.details()


def test_the_end_lets_calls_finish_and_takes_no_more(
    start_supervisor: Callable[..., Supervisor], fifo: Callable[..., Path]
) -> None:
    supervisor = start_supervisor(*FLAGS)
    supervisor.client.load("m", runtime="echo")
    gate = fifo()
    with channel_to(supervisor) as channel, channel_to(supervisor) as other:
        stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        answers = stub.ModelStreamInfer(requests := Held())
        call = stub.ModelInfer.future(command("m", f"gate:{gate}"))
        with gate.open("wb"):
            supervisor.process.terminate()
            late = service_pb2_grpc.GRPCInferenceServiceStub(other)
            wait_until(lambda: refused(late) == grpc.StatusCode.UNAVAILABLE, 20)
            assert not call.done()
        assert call.result(60).model_name == "m"
        with pytest.raises(grpc.RpcError) as error:
            next(answers)
        requests.over.set()
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        assert supervisor.stop() == 0


class Held:
    """The requests of a client that sends none and does not end."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def __iter__(self) -> Held:
        return self

    def __next__(self) -> Any:
        self.over.wait()
        raise StopIteration


def refused(stub: service_pb2_grpc.GRPCInferenceServiceStub) -> grpc.StatusCode | None:
    try:
        stub.ModelInfer(number("m"), timeout=20)
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code
    return None


def test_nothing_stays_behind_after_many_calls(shared_supervisor: Supervisor) -> None:
    process = psutil.Process(shared_supervisor.pid)
    shared_supervisor.client.load("m", runtime="echo")

    def ask(times: int) -> tuple[int, int, int]:
        for _ in range(times):
            with channel_to(shared_supervisor) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                for _ in range(10):
                    stub.ModelInfer(number("m"))
                with pytest.raises(grpc.RpcError):
                    stub.ModelInfer(number("nope"))
                with pytest.raises(grpc.RpcError):
                    stub.ModelInfer(command("m", "sleep:0.05"), timeout=0.01)
        shared_supervisor.until(lambda: in_flight(shared_supervisor) == 0)
        return process.memory_full_info().uss, process.num_fds(), process.num_threads()

    first_memory, files, threads = ask(50)
    memory, last_files, last_threads = ask(50)
    assert memory - first_memory < 2_000_000
    assert last_files <= files
    assert last_threads <= threads


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_what_is_no_message(shared_supervisor: Supervisor, method: str) -> None:
    with channel_to(shared_supervisor) as channel:
        call = channel.stream_stream(f"/inference.GRPCInferenceService/{method}")
        with pytest.raises(grpc.RpcError) as error:
            next(call(iter([b"\xff\xff"])))
    assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "is no inference.ModelInferRequest" in error.value.details()
    assert "Traceback" not in shared_supervisor.log()


def test_health(shared_supervisor: Supervisor) -> None:
    with channel_to(shared_supervisor) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        assert check(b"") == b"\x08\x01"  # SERVING
        assert check(b"\x0a\x1e" + b"inference.GRPCInferenceService") == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as error:
            check(b"\x0a\x04nope")
    assert error.value.code() is grpc.StatusCode.NOT_FOUND


def test_the_port_is_told(shared_supervisor: Supervisor) -> None:
    address = shared_supervisor.client.status().grpc
    assert address is not None
    assert address in shared_supervisor.run("status").stdout
    with triton.InferenceServerClient(address) as client:
        assert client.is_server_live()


def test_a_port_that_is_in_use(shared_supervisor: Supervisor, tmp_path: Path) -> None:
    port = str(shared_supervisor.client.status().grpc).rpartition(":")[2]
    said = start_in_vain(tmp_path / "state", 0, "--grpc-port", port)
    assert f":{port}: Address already in use" in said
    assert "--grpc-port" in said


def test_no_port_means_no_grpc(supervisor: Supervisor) -> None:
    assert supervisor.client.status().grpc is None
    libraries = [m.path for m in psutil.Process(supervisor.pid).memory_maps()]
    assert not [path for path in libraries if "cygrpc" in path]


@pytest.fixture
def without_grpc(tmp_path: Path) -> dict[str, str]:
    """The environment of a Python that has no grpcio."""
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_GRPC)
    return {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}


WITHOUT_GRPC = """
import sys

class NotThere:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("grpc", "google"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, NotThere())
"""


def test_without_the_extra_there_is_no_grpc(
    start_supervisor: Callable[..., Supervisor], without_grpc: dict[str, str]
) -> None:
    supervisor = start_supervisor(*FLAGS, environment=without_grpc)
    assert supervisor.client.status().grpc is None
    supervisor.client.load("m", runtime="echo")
    assert supervisor.client.predict_json("m", {"instances": [[1.0]]})


def test_fork_support_of_grpc_does_not_disturb(start_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = start_supervisor(*FLAGS, environment={"GRPC_ENABLE_FORK_SUPPORT": "1"})
    with triton.InferenceServerClient(supervisor.client.status().grpc) as client:
        for name in ("a", "b"):
            supervisor.client.load(name, runtime="echo")
            assert client.is_model_ready(name)
        with pytest.raises(InferenceServerException, match="nope"):
            client.is_model_ready("nope")
