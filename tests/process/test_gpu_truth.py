"""The supervisor works on whatever NVML does, and gives a worker its GPU and its cap."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.client import InvalidRequest, LoadFailed, ModelsupError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GIB = 2**30
TOTAL = 8 * GIB
DEVICE = f"device GPU-a {TOTAL} {GIB // 4}"
V3 = "nvmlDeviceGetComputeRunningProcesses_v3"
X = np.ones((1, 2), np.float32)


@pytest.fixture
def start_on_gpus(start_supervisor: Callable[..., Any], fake_gpus: Any) -> Callable[..., Any]:
    """Start a supervisor that sees the fake GPUs, through the given library or the usual one."""

    def start(*flags: str, library: Path | None = None) -> Any:
        environment = dict(fake_gpus.environment)
        if library is not None:
            environment["LD_LIBRARY_PATH"] = str(library.parent)
        return start_supervisor(*flags, environment=environment)

    return start


@pytest.fixture
def gpu_model(echo_model: Callable[..., str], fake_gpus: Any) -> Callable[..., str]:
    """Write an echo model that takes this many bytes of its GPU as it loads."""

    def write(size: int, name: str = "model", **options: Any) -> str:
        return echo_model(name, fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{size}"], **options)

    return write


def serves(supervisor: Any, name: str, source: str, device: str | None) -> None:
    """Assert that a model can be loaded onto a device, used and unloaded."""
    supervisor.client.load(name, source)
    (worker,) = supervisor.client.workers()
    assert worker.device == device
    assert np.array_equal(supervisor.client.predict(name, X), X)
    assert supervisor.client.unload(name).outcome == "drained"


def test_a_worker_takes_memory_of_its_gpu_up_to_its_cap(
    start_on_gpus: Callable[..., Any], gpu_model: Callable[..., str], fake_gpus: Any
) -> None:
    supervisor = start_on_gpus()
    supervisor.client.load("m", gpu_model(GIB), gpu_memory=2 * GIB)
    (worker,) = supervisor.client.workers()
    assert (worker.device, worker.gpu_memory_limit_bytes) == ("GPU-a", 2 * GIB)
    mine = f"process {worker.pid} GPU-a"
    assert f"{mine} {GIB}" in fake_gpus.path.read_text()
    supervisor.command("m", f"gpu:{GIB}")
    assert f"{mine} {2 * GIB}" in fake_gpus.path.read_text()
    with pytest.raises(ModelsupError, match=r"out of GPU memory: .* over the cap"):
        supervisor.command("m", "gpu:1")
    assert [w.pid for w in supervisor.client.workers()] == [worker.pid]


def test_the_cap_as_a_fraction_is_of_the_whole_gpu(
    start_on_gpus: Callable[..., Any], gpu_model: Callable[..., str]
) -> None:
    supervisor = start_on_gpus()
    supervisor.client.load("m", gpu_model(1), gpu_memory_fraction=0.25)
    assert supervisor.client.workers()[0].gpu_memory_limit_bytes == TOTAL // 4


@pytest.mark.parametrize("taken", [0, 6 * GIB], ids=["over its cap", "more than is free"])
def test_a_model_that_finds_too_little_gpu_memory(
    start_on_gpus: Callable[..., Any], gpu_model: Callable[..., str], fake_gpus: Any, taken: int
) -> None:
    fake_gpus.add(f"other GPU-a {taken}")
    supervisor = start_on_gpus()
    options = {} if taken else {"gpu_memory": GIB}
    with pytest.raises(LoadFailed, match="out of GPU memory") as raised:
        supervisor.client.load("m", gpu_model(2 * GIB), **options)
    assert raised.value.cause == "cuda_oom"


def test_no_nvml(
    start_on_gpus: Callable[..., Any], echo_model: Callable[..., str], tmp_path: Path
) -> None:
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"not a library")
    supervisor = start_on_gpus(library=library)
    serves(supervisor, "m", echo_model(), None)
    with pytest.raises(InvalidRequest, match=r"no device 'gpu:0'.*libnvidia-ml.so.1.*are: cpu"):
        supervisor.client.load("n", echo_model("n"), device="gpu:0")


def test_nvml_hangs(
    start_on_gpus: Callable[..., Any], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    supervisor = start_on_gpus()
    serves(supervisor, "m", echo_model(), "GPU-a")
    fake_gpus.add(f"hang {V3}", "hang nvmlDeviceGetMemoryInfo_v2")
    serves(supervisor, "m", echo_model(), "GPU-a")


TELLS_LESS = {
    "memory fails": (["error nvmlDeviceGetMemoryInfo_v2 999"], (), "Unknown Error"),
    "list refused": ([f"error {V3} 4"], (), "its processes are not known: Insufficient Perm"),
    "lost": (["lost GPU-a"], (), "GPU is lost"),
    "not told": ([f"process {os.getpid()} GPU-a {GIB} unknown"], (), "memory of its processes"),
    "host pids": (["offset 3000000"], (), "none of its processes has the pid of a worker"),
    "nobody listed": (["hidden"], (), "none of its processes has the pid of a worker"),
    "v2 list": ([], ("WITHOUT_PROCESSES_V3",), None),
    "v1 memory": ([], ("WITHOUT_MEMORY_V2", "WITHOUT_PROCESSES"), "Function Not Found"),
    "hangs": ([f"hang {V3}"], (), "NVML is not answering"),
}


@pytest.mark.parametrize(("lines", "macros", "said"), TELLS_LESS.values(), ids=TELLS_LESS)
def test_nvml_tells_less(
    start_on_gpus: Callable[..., Any],
    gpu_model: Callable[..., str],
    fake_gpus: Any,
    nvml_library: Callable[..., Path],
    lines: list[str],
    macros: tuple[str, ...],
    said: str | None,
) -> None:
    """It begins to once a model is loaded; that one serves on, and what is not known is said."""
    flags = ("--memory-back-timeout", "0.1")
    supervisor = start_on_gpus(*flags, library=nvml_library(*macros))
    client = supervisor.client
    client.load("m", gpu_model(GIB), device="gpu:0")
    fake_gpus.add(*lines)
    assert np.array_equal(client.predict("m", X), X)
    (gpu,) = client.memory().gpus
    assert gpu.total_bytes == TOTAL
    if said is None:
        assert (gpu.workers_bytes, gpu.reason) == (GIB, None)
    else:
        assert said in gpu.reason
        assert said in supervisor.run("top").stdout
    receipt = client.unload("m")
    assert receipt.outcome == "drained"
    assert receipt.freed.gpu_bytes == {"GPU-a": GIB if receipt.verified else 0}
    assert bool(receipt.reason) is not receipt.verified


@pytest.mark.parametrize(
    "lines",
    [[f"process {os.getpid()} GPU-a {GIB}", "offset 3000000"], ["hidden"], [f"error {V3} 4"]],
    ids=["host pids", "nobody listed", "list refused"],
)
def test_a_container_in_which_nvml_does_not_tell_who_holds_what(
    start_on_gpus: Callable[..., Any],
    gpu_model: Callable[..., str],
    fake_gpus: Any,
    lines: list[str],
) -> None:
    """The second load once got its cap by the 0 bytes that the first was seen to hold, and failed.

    What the GPU's use has grown by until the model was ready is what has to be back.
    """
    fake_gpus.add(f"other GPU-a {GIB}", *lines)
    client = start_on_gpus("--memory-back-timeout", "30").client
    model = gpu_model(GIB)
    for _ in range(2):
        client.load("m", model)
        (worker,) = client.workers()
        assert (worker.estimated, worker.gpu_memory_limit_bytes > 2 * 10**9) == (True, True)
        (gpu,) = client.memory().gpus
        assert (gpu.workers_bytes, gpu.others_bytes) == (None, None)
        receipt = client.unload("m")
        assert (receipt.verified, receipt.reason) == (True, None)
        assert receipt.freed.gpu_bytes == {"GPU-a": GIB}


@pytest.mark.parametrize(
    ("line", "why"),
    [("lost GPU-a", "GPU is lost"), ("error nvmlDeviceGetMemoryInfo_v2 999", "Unknown Error")],
)
def test_a_gpu_that_is_sick_at_the_start(
    start_on_gpus: Callable[..., Any],
    echo_model: Callable[..., str],
    fake_gpus: Any,
    line: str,
    why: str,
) -> None:
    """Models go to the CPU, and who asks for the GPU is told what is wrong with it."""
    fake_gpus.add(line)
    supervisor = start_on_gpus()
    serves(supervisor, "m", echo_model(), None)
    with pytest.raises(InvalidRequest, match=f"gpu:0 could not be used at the start: {why}"):
        supervisor.client.load("n", echo_model("n"), device="gpu:0")
    assert f"gpu:0 cannot be used: {why}" in supervisor.log()


def test_a_gpu_that_is_lost_under_its_worker(
    start_on_gpus: Callable[..., Any],
    gpu_model: Callable[..., str],
    echo_model: Callable[..., str],
    fake_gpus: Any,
) -> None:
    """Its unload does not wait for what nobody can tell; what comes later goes to the CPU."""
    supervisor = start_on_gpus("--memory-back-timeout", "1000")
    client = supervisor.client
    client.load("m", gpu_model(GIB), gpu_memory=2 * GIB)
    fake_gpus.add("lost GPU-a")
    assert "NOT verified: GPU is lost" in supervisor.run("unload", "m").stdout
    assert client.workers() == []
    serves(supervisor, "n", echo_model("n"), None)
    with pytest.raises(InvalidRequest, match="gpu:0 is lost: reset it"):
        client.load("o", echo_model("o"), device="gpu:0")
    fake_gpus.remove("lost")
    assert client.memory().gpus[0].reason is None
    serves(supervisor, "n", echo_model("n"), "GPU-a")


def test_a_mig_device(
    start_on_gpus: Callable[..., Any], gpu_model: Callable[..., str], fake_gpus: Any
) -> None:
    fake_gpus.set(DEVICE, f"mig GPU-a MIG-1 {2 * GIB} 0", f"mig GPU-a MIG-2 {4 * GIB} 0")
    supervisor = start_on_gpus()
    supervisor.client.load("m", gpu_model(GIB), device="gpu:1", gpu_memory_fraction=0.5)
    (worker,) = supervisor.client.workers()
    assert (worker.device, worker.gpu_memory_limit_bytes) == ("MIG-2", 2 * GIB)
