"""Workers that are parked: off their GPU while nobody asks, and back on it for the next request."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.supervisor.adapters import parking
from modelsup.supervisor.errors import ParkingFailed

from tests.conftest import GIB

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}
SIZE = 2 * GIB  # of the GPU, that a model takes


@pytest.fixture
def start(
    start_supervisor: Callable[..., Any], fake_gpus: Any, cuda_library: Callable[..., Path]
) -> Callable[..., Any]:
    """Start a supervisor on a GPU of 8 GiB with a driver that can checkpoint, or cannot."""

    def on_gpu(*flags: str, macros: tuple[str, ...] = ()) -> Any:
        nvml, cuda = fake_gpus.environment["LD_LIBRARY_PATH"], cuda_library(*macros).parent
        environment = fake_gpus.environment | {"LD_LIBRARY_PATH": f"{nvml}:{cuda}"}
        return start_supervisor(*flags, environment=environment)

    return on_gpu


@pytest.fixture
def source(echo_model: Callable[..., str], fake_gpus: Any) -> Callable[..., str]:
    """Write an echo model that takes SIZE of its GPU."""
    gpu = str(fake_gpus.path)
    return lambda name="m", **more: echo_model(
        name, fake_gpu=gpu, on_load=[f"gpu:{SIZE}"], name_=name, **more
    )


def state(supervisor: Any, model: str = "m") -> str:
    found: str = supervisor.client.model(model).state
    return found


def parked(supervisor: Any, source: str, model: str = "m", **options: Any) -> int:
    """Let a model answer and be parked; return the pid of its worker."""
    supervisor.client.load(model, source, keep="ram", gpu_memory=SIZE, **options)
    assert supervisor.client.predict_json(model, BODY) == ANSWER
    supervisor.until(lambda: state(supervisor, model) == "parked" and on_gpu(supervisor) == 0)
    (worker,) = [w for w in supervisor.client.workers() if w.model == model]
    return int(worker.pid)


def on_gpu(supervisor: Any) -> int:
    """Return the bytes that workers are charged of the GPU."""
    return int(supervisor.client.memory().gpus[0].charged_bytes)


def events(supervisor: Any, kind: str) -> list[str]:
    return [event.message for event in supervisor.client.events() if event.kind == kind]


def test_it_leaves_its_gpu_after_a_request_and_comes_back_for_the_next(
    start: Callable[..., Any], source: Callable[..., str]
) -> None:
    supervisor = start()
    pid = parked(supervisor, source())
    memory = supervisor.client.memory()
    assert memory.gpus[0].workers_bytes == 0
    assert memory.host.charged_bytes >= SIZE
    assert supervisor.client.model("m").residency == "ram"
    for _ in range(3):
        assert supervisor.client.predict_json("m", BODY) == ANSWER
        assert supervisor.client.workers()[0].pid == pid
        supervisor.until(lambda: state(supervisor) == "parked")
    assert events(supervisor, "restart") == []


def test_a_load_wakes_it_and_its_charges_are_as_before(
    start: Callable[..., Any], source: Callable[..., str]
) -> None:
    supervisor, file = start(), source()
    supervisor.client.load("m", file, keep="ram", gpu_memory=SIZE)
    before = supervisor.client.workers()[0].charges
    parked(supervisor, file)
    supervisor.client.load("m")
    (worker,) = supervisor.client.workers()
    assert (worker.state, worker.charges) == ("ready", before)


def test_its_return_waits_for_room(start: Callable[..., Any], source: Callable[..., str]) -> None:
    supervisor = start("--minimum-residence", "0")
    pid = parked(supervisor, source())
    for name in ("a", "b", "c"):
        supervisor.client.load(name, source(name), gpu_memory=SIZE)
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    assert pid in {worker.pid for worker in supervisor.client.workers()}
    assert events(supervisor, "eviction") == ["evicting"]


def test_it_gives_way_where_host_memory_is_short(
    start: Callable[..., Any], source: Callable[..., str], echo_model: Callable[..., str]
) -> None:
    supervisor = start("--minimum-residence", "0")
    parked(supervisor, source())
    host = supervisor.client.memory().host
    room = host.budget_bytes - host.charged_bytes + SIZE // 2
    supervisor.client.load("large", echo_model("large"), ram=room, device="cpu")
    assert state(supervisor) == "unloaded"
    assert supervisor.client.predict_json("m", BODY) == ANSWER


@pytest.mark.parametrize("why", ["driver", "ram", "mig", "loaded"])
def test_where_it_may_not_be_parked_it_is_unloaded(
    start: Callable[..., Any], source: Callable[..., str], fake_gpus: Any, why: str
) -> None:
    if why == "mig":
        fake_gpus.set(f"device GPU-a {8 * GIB} 0", f"mig GPU-a MIG-a {4 * GIB} 0")
    supervisor = start(macros=("WITHOUT_CHECKPOINT",) if why == "driver" else ())
    options = {"ram": SIZE // 2} if why == "ram" else {}
    keep = "disk" if why == "loaded" else "ram"
    supervisor.client.load("m", source(), keep=keep, gpu_memory=SIZE, **options)
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    supervisor.until(lambda: state(supervisor) == "unloaded")
    assert events(supervisor, "idle") == ["unloading an idle model"]


@pytest.mark.parametrize("function", ["Lock", "Checkpoint"])
def test_where_the_driver_refuses_it_is_unloaded(
    start: Callable[..., Any], source: Callable[..., str], fake_gpus: Any, function: str
) -> None:
    supervisor = start()
    fake_gpus.add(f"error cuCheckpointProcess{function} 2")
    supervisor.client.load("m", source(), keep="ram", gpu_memory=SIZE)
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    supervisor.until(lambda: state(supervisor) == "unloaded")
    (alarm,) = [event for event in supervisor.client.events() if event.kind == "alarm"]
    assert f"cuCheckpointProcess{function} failed with 2" in alarm.facts["reason"]
    assert supervisor.client.predict_json("m", BODY) == ANSWER


def test_where_it_cannot_come_back_a_new_one_answers(
    start: Callable[..., Any], source: Callable[..., str], fake_gpus: Any
) -> None:
    supervisor = start()
    pid = parked(supervisor, source())
    fake_gpus.add("error cuCheckpointProcessRestore 2")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    assert pid not in {worker.pid for worker in supervisor.client.workers()}
    assert not psutil.pid_exists(pid)


def test_an_unload_ends_it_and_is_verified(
    start: Callable[..., Any], source: Callable[..., str]
) -> None:
    supervisor = start()
    pid = parked(supervisor, source())
    receipt = supervisor.client.unload("m")
    assert receipt.verified
    assert receipt.seconds.total < 5
    assert not psutil.pid_exists(pid)


def test_one_that_is_killed_is_no_crash_of_its_model(
    start: Callable[..., Any], source: Callable[..., str]
) -> None:
    supervisor = start()
    pid = parked(supervisor, source())
    psutil.Process(pid).send_signal(signal.SIGKILL)
    supervisor.until(lambda: state(supervisor) == "unloaded")
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    assert events(supervisor, "restart") == []


def test_one_whose_files_have_changed_does_not_come_back(
    start: Callable[..., Any], source: Callable[..., str]
) -> None:
    supervisor = start()
    file = source()
    pid = parked(supervisor, file)
    options = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps(options | {"changed": True}))
    assert supervisor.client.predict_json("m", BODY) == ANSWER
    assert supervisor.client.workers()[0].pid != pid


def test_many_who_ask_at_once_wake_it_once(
    start: Callable[..., Any], source: Callable[..., str], background: Callable[..., Any]
) -> None:
    supervisor = start()
    pid = parked(supervisor, source())
    asked = [background(supervisor.client.predict_json, "m", BODY) for _ in range(16)]
    assert [each.result() for each in asked] == [ANSWER] * 16
    supervisor.until(lambda: state(supervisor) == "parked")
    assert [worker.pid for worker in supervisor.client.workers()] == [pid]


def test_a_driver_that_hangs_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, fake_gpus: Any, cuda_library: Callable[..., Path]
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(cuda_library().parent))
    monkeypatch.setenv("MODELSUP_FAKE_NVML", str(fake_gpus.path))
    monkeypatch.setattr(parking, "MOVE_SECONDS", 1.0)
    fake_gpus.add("hang cuCheckpointProcessLock")
    with pytest.raises(ParkingFailed, match="the driver did not park within 1 s"):
        asyncio.run(parking.CudaParking().park(1))
