"""What an unload says of the GPU memory that a worker held; it never answers before that is back.

Fails as TensorFlow Serving and Triton did: unloads that answered while memory was still in use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30


@pytest.fixture
def on_gpu(start_supervisor: Callable[..., Any], fake_gpus: Any) -> Any:
    """A supervisor on one GPU, patient enough for what comes back late."""
    return start_supervisor("--memory-back-timeout", "2", environment=fake_gpus.environment)


@pytest.fixture
def gpu_model(echo_model: Callable[..., str], fake_gpus: Any) -> Callable[..., str]:
    """Write an echo model that takes 1 GiB of its GPU as it loads, and then does more."""

    def write(*more: str) -> str:
        return echo_model(fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{GIB}", *more])

    return write


def test_the_receipt_has_the_gpu_memory(
    on_gpu: Any, gpu_model: Callable[..., str], fake_gpus: Any
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}")
    on_gpu.client.load("m", gpu_model())
    receipt = on_gpu.client.unload("m")
    assert receipt.verified
    assert receipt.freed.gpu_bytes == {"GPU-a": GIB}
    assert receipt.seconds.memory_back < 0.5


def test_memory_that_comes_back_late(
    on_gpu: Any, gpu_model: Callable[..., str], fake_gpus: Any, background: Callable[..., Any]
) -> None:
    on_gpu.client.load("m", gpu_model())
    (worker,) = on_gpu.client.workers()
    fake_gpus.mark(f"process {worker.pid}", "leak")
    unloading = background(on_gpu.client.unload, "m")
    on_gpu.until(lambda: not Path(f"/proc/{worker.pid}").exists())
    assert not unloading.done()
    assert on_gpu.client.workers()[0].state == "stopping"
    fake_gpus.remove(f"process {worker.pid}")
    assert unloading.result().freed.gpu_bytes == {"GPU-a": GIB}
    assert unloading.result().verified


def test_memory_that_does_not_come_back_stays_charged(
    on_gpu: Any, gpu_model: Callable[..., str], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    """The next model that would need that memory is refused, until the GPU has it back."""
    client = on_gpu.client
    client.load("m", gpu_model(), gpu_memory=5 * GIB)
    (worker,) = client.workers()
    fake_gpus.mark(f"process {worker.pid}", "leak")
    receipt = client.unload("m")
    assert not receipt.verified
    assert receipt.freed.gpu_bytes == {"GPU-a": 0}
    assert [(w.id, w.state) for w in client.workers()] == [(worker.id, "leaked")]

    refused = on_gpu.run("load", "next", echo_model("next"), "--gpu-memory", "5GiB", check=False)
    assert refused.returncode != 0
    assert "did not give its memory back" in refused.stderr
    client.load("small", echo_model("small"), gpu_memory=GIB)

    fake_gpus.remove(f"process {worker.pid}")
    on_gpu.until(lambda: worker.id not in {w.id for w in client.workers()})
    client.load("next", gpu_memory=5 * GIB)


@pytest.mark.parametrize("when", ["loading", "serving"])
def test_a_crash_whose_memory_comes_back_late(
    on_gpu: Any, gpu_model: Callable[..., str], fake_gpus: Any, fifo: Callable[..., Path], when: str
) -> None:
    """Its next worker starts once the memory is back, or the loss is known."""
    client, gate = on_gpu.client, fifo()
    client.load("m", gpu_model(f"gate:{gate}"), wait=0)
    with gate.open("w"):
        (worker,) = client.workers()
        if when == "loading":
            fake_gpus.mark(f"process {worker.pid}", "leak")
            os.kill(worker.pid, 9)
    if when == "serving":
        on_gpu.until(lambda: client.model("m").state == "ready")
        fake_gpus.mark(f"process {worker.pid}", "leak")
        os.kill(worker.pid, 9)
    on_gpu.until(lambda: (worker.id, "leaked") in {(w.id, w.state) for w in client.workers()})
    fake_gpus.remove(f"process {worker.pid}")
    on_gpu.until(lambda: worker.id not in {w.id for w in client.workers()})
    if when == "loading":
        assert client.model("m").state == "failed"
        return
    with gate.open("w"):
        pass
    on_gpu.until(lambda: client.model("m").state == "ready")
