"""What holds on a real GPU; skipped, with the reason, on a machine without one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor.adapters.devices import Gpus
from modelsup.supervisor.adapters.nvml import Nvml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from modelsup.supervisor.adapters.nvml import GpuInfo

GIB = 2**30
LIMIT = 2 * GIB
CONTEXT = 2 * GIB  # more than any framework takes beside its allocator
NOISE = GIB // 4  # what the driver may keep, and others may do meanwhile
PROGRAM = Path(__file__).parent / "fill_gpu.py"


@pytest.fixture(scope="module")
def gpus() -> Gpus:
    """The GPUs of this machine."""
    nvml = Nvml(start_deadline=60)
    if not nvml.devices():
        pytest.skip(f"no GPU: {nvml.reason or 'NVML lists none'}")
    return Gpus(nvml, memory_back_timeout=30)


@pytest.fixture
def gpu(gpus: Gpus) -> GpuInfo:
    """The first GPU, if there is room on it."""
    first = gpus.nvml.devices()[0]
    state = asyncio.run(gpus.nvml.sample())[first.uuid]
    if state.free is None or state.free < 2 * LIMIT + CONTEXT:
        pytest.skip(f"too little is free on {first.name}: {state.free} bytes")
    return first


@contextlib.contextmanager
def filling(framework: str, uuid: str, log: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that has filled its cap of a GPU, and the bytes that it allocated."""
    if find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    command = [sys.executable, str(PROGRAM), framework, uuid, str(LIMIT)]
    with (
        log.open("w") as errors,  # not a pipe: a failed allocation is explained at length
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()[-3000:]
            answer: dict[str, Any] = json.loads(line)
            if "unusable" in answer:
                pytest.skip(answer["unusable"])
            yield process, answer["allocated"]
        finally:
            process.kill()


def test_the_figures_of_each_gpu_agree(gpus: Gpus) -> None:
    states = asyncio.run(gpus.nvml.sample())
    assert list(states) == [gpu.uuid for gpu in gpus.nvml.devices()]
    for gpu in gpus.nvml.devices():
        state = states[gpu.uuid]
        assert gpu.uuid.startswith(("GPU-", "MIG-"))
        assert gpu.name
        assert state.used is not None
        assert state.free is not None
        assert state.total == gpu.total > 0
        assert abs(state.total - state.used - state.free - (state.reserved or 0)) < NOISE
        assert state.processes is not None or state.reason


@pytest.mark.timeout(300)
@pytest.mark.parametrize("framework", ["tensorflow", "torch", "jax"])
def test_a_cap_holds_and_the_memory_is_back_after_a_kill(
    gpus: Gpus, gpu: GpuInfo, framework: str, tmp_path: Path
) -> None:
    async def measured() -> None:
        before = (await gpus.nvml.sample())[gpu.uuid].used
        with filling(framework, gpu.uuid, tmp_path / "log") as (process, allocated):
            assert LIMIT // 2 <= allocated <= LIMIT
            during = (await gpus.nvml.sample())[gpu.uuid].used
            assert before is not None
            assert during is not None
            assert allocated - NOISE <= during - before <= LIMIT + CONTEXT
            hold = await gpus.hold(gpu.uuid, process.pid)
            if hold.bytes is not None:
                assert allocated <= hold.bytes <= LIMIT + CONTEXT
            process.kill()
            process.wait()
            found = await gpus.reclaimed(hold, during - before)
            after = (await gpus.nvml.sample())[gpu.uuid].used
        assert found.verdict == "back", found.reason
        assert found.freed >= allocated - NOISE
        assert after is not None
        assert after - before <= NOISE

    asyncio.run(measured())


def test_a_worker_is_given_the_first_gpu(
    gpus: Gpus, supervisor: Any, echo_model: Callable[..., str]
) -> None:
    first = gpus.nvml.devices()[0]
    supervisor.client.load("m", echo_model(), device="gpu:0", gpu_memory_fraction=0.5)
    (worker,) = supervisor.client.workers()
    assert worker.device == first.uuid
    assert worker.gpu_memory_limit_bytes == first.total // 2
    assert supervisor.client.unload("m").verified
