"""No worker takes more of a GPU than it is charged: each has a cap, and its context is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import DoesNotFit, LoadFailed, ModelsupError

if TYPE_CHECKING:
    from collections.abc import Callable

GIB = 2**30
MIB = 2**20
DEFAULT_CONTEXT = 450 * 10**6  # the setting gpu_context_memory
CONTEXT = 300 * MIB  # what the pretended driver makes for each process
MODEST = 512 * MIB  # the least cap of a model that nobody has measured
GENEROUS = 2 * GIB  # its cap where there is room


@pytest.fixture
def start_on_gpu(start_supervisor: Callable[..., Any], fake_gpus: Any) -> Callable[[], Any]:
    """Start a supervisor on a GPU of 8 GiB."""
    return lambda: start_supervisor(environment=fake_gpus.environment)


@pytest.fixture
def gpu_model(echo_model: Callable[..., str], fake_gpus: Any) -> Callable[..., str]:
    """Write an echo model that takes so many bytes of its GPU as it loads, beside a context."""

    def write(name: str, size: int, context: int = CONTEXT) -> str:
        options = {"fake_gpu": str(fake_gpus.path), "fake_gpu_context": context}
        return echo_model(name, **options, on_load=[f"gpu:{size}", f"print:I am {name}"])

    return write


def only_worker(supervisor: Any) -> Any:
    (worker,) = supervisor.client.workers()
    return worker


def near(size: int) -> Any:
    """Cover what the few bytes of a model file add to an estimate."""
    return pytest.approx(size, abs=100_000)


def test_the_context_is_measured_once_and_then_charged(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str]
) -> None:
    supervisor = start_on_gpu()
    client = supervisor.client
    client.load("first", gpu_model("first", GIB), gpu_memory=2 * GIB)
    assert only_worker(supervisor).charges["GPU-a"] == 2 * GIB + DEFAULT_CONTEXT
    client.unload("first")
    client.load("second", gpu_model("second", MIB), gpu_memory=2 * GIB)
    assert only_worker(supervisor).charges["GPU-a"] == 2 * GIB + CONTEXT
    supervisor.stop()

    again = start_on_gpu()
    again.until(lambda: again.client.model("second").state == "ready")
    assert only_worker(again).charges["GPU-a"] == 2 * GIB + CONTEXT


def test_a_context_that_is_larger_than_the_default(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str]
) -> None:
    """The worker that shows it is charged with it at once; later ones from the start."""
    supervisor = start_on_gpu()
    supervisor.client.load("m", gpu_model("m", GIB, context=GIB), gpu_memory=GIB)
    supervisor.until(lambda: only_worker(supervisor).charges["GPU-a"] == 2 * GIB)
    supervisor.client.unload("m")
    supervisor.client.load("n", gpu_model("n", MIB, context=GIB), gpu_memory=GIB)
    assert only_worker(supervisor).charges["GPU-a"] == 2 * GIB


@pytest.mark.parametrize("why", ["not told", "host pids"])
def test_the_default_stands_where_the_driver_tells_no_process(
    start_on_gpu: Callable[[], Any],
    gpu_model: Callable[..., str],
    fake_gpus: Any,
    why: str,
) -> None:
    fake_gpus.add(
        "error nvmlDeviceGetComputeRunningProcesses_v3 4" if why == "not told" else "offset 3000000"
    )
    supervisor = start_on_gpu()
    for name in ("first", "second"):
        supervisor.client.load(name, gpu_model(name, MIB), gpu_memory=GIB)
        assert only_worker(supervisor).charges["GPU-a"] == GIB + DEFAULT_CONTEXT
        supervisor.client.unload(name)


def test_a_model_without_a_cap_gets_one_and_cannot_take_more(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str], fake_gpus: Any
) -> None:
    supervisor = start_on_gpu()
    client = supervisor.client
    client.load("m", gpu_model("m", GIB))
    worker = only_worker(supervisor)
    assert worker.gpu_memory_limit_bytes == near(GENEROUS)
    assert worker.charges["GPU-a"] == worker.gpu_memory_limit_bytes + DEFAULT_CONTEXT
    with pytest.raises(ModelsupError, match=r"over the cap of \d+; .* larger --gpu-memory"):
        supervisor.command("m", f"gpu:{GIB + MIB}")
    assert f"process {worker.pid} GPU-a {GIB + CONTEXT}" in fake_gpus.path.read_text()
    assert only_worker(supervisor).pid == worker.pid


def test_a_model_that_needs_more_than_its_estimate_says_which_option_to_raise(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str]
) -> None:
    client = start_on_gpu().client
    source = gpu_model("m", 3 * GIB)
    with pytest.raises(LoadFailed, match=r"over the cap of \d+; .* larger --gpu-memory") as raised:
        client.load("m", source)
    assert raised.value.cause == "cuda_oom"
    client.load("m", source, gpu_memory=3 * GIB)


def test_what_it_took_at_most_in_its_life_makes_its_next_cap(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str]
) -> None:
    """Also what it took after its load, for larger batches than the first call's."""
    supervisor = start_on_gpu()
    client = supervisor.client
    client.load("m", gpu_model("m", GIB))
    supervisor.until(lambda: not only_worker(supervisor).estimated)
    supervisor.command("m", f"gpu:{GIB // 2}")
    client.unload("m")
    client.load("m")
    worker = only_worker(supervisor)
    assert not worker.estimated
    assert worker.gpu_memory_limit_bytes == int(1.5 * GIB * 1.25)
    assert worker.charges["GPU-a"] == worker.gpu_memory_limit_bytes + CONTEXT


def test_the_caps_never_sum_up_to_more_than_the_budget(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str], fake_gpus: Any
) -> None:
    """Models that all try to take the whole GPU: each meets its own cap, none another's."""
    fake_gpus.set(f"device GPU-a {9 * GIB} 0")
    supervisor = start_on_gpu()
    client = supervisor.client
    for name in "abcd":
        client.load(name, gpu_model(name, MIB), pin=True)
    with pytest.raises(DoesNotFit):
        client.load("e", gpu_model("e", MIB))
    caps = {w.model: w.gpu_memory_limit_bytes for w in client.workers()}
    assert caps == {name: near(GENEROUS) for name in "abc"} | {"d": near(MODEST)}
    gpu = client.memory().gpus[0]
    assert sum(cap + CONTEXT for cap in caps.values()) <= gpu.charged_bytes <= gpu.budget_bytes
    for name, cap in caps.items():
        with pytest.raises(ModelsupError, match="over the cap"):
            supervisor.command(name, f"gpu:{8 * GIB}")
        supervisor.command(name, f"gpu:{cap - MIB}")
    assert client.memory().gpus[0].used_bytes == sum(cap + CONTEXT for cap in caps.values())


def test_an_option_that_came_after_the_load_is_told(
    start_on_gpu: Callable[[], Any], gpu_model: Callable[..., str]
) -> None:
    client = start_on_gpu().client
    source = gpu_model("m", MIB)
    assert client.load("m", source).warnings == ()
    for size in (GIB, 3 * GIB):
        (warning,) = client.load("m", source, gpu_memory=size).warnings
        assert "loaded before this GPU memory option" in warning
    client.unload("m")
    assert client.load("m", source, gpu_memory=3 * GIB).warnings == ()
