"""What the adapter makes of NVML's answers, asked through the real pynvml over a false library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 2**30
MIB = 2**20
TOTAL, RESERVED = 8 * GIB, GIB // 4  # of the device of fake_gpus
V3 = "nvmlDeviceGetComputeRunningProcesses_v3"
V2 = "nvmlDeviceGetComputeRunningProcesses_v2"
MEMORY = "nvmlDeviceGetMemoryInfo_v2"
FUNCTION_NOT_FOUND, NO_PERMISSION, DRIVER_NOT_LOADED, UNKNOWN = 13, 4, 9, 999
DEADLINE, START_DEADLINE, MEMORY_BACK = "0.2", "10", "5"  # seconds


class Probe:
    """A process with an adapter in it, that answers questions."""

    def __init__(self, environment: dict[str, str], *seconds: str) -> None:
        script = Path(__file__).parents[1] / "fake_nvml" / "probe.py"
        self.process = subprocess.Popen(
            [sys.executable, str(script), *seconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def send(self, *question: object) -> None:
        assert self.process.stdin is not None
        print(*question, file=self.process.stdin, flush=True)

    def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, *question: object) -> Any:
        self.send(*question)
        return self.receive()

    def sample(self) -> Any:
        """The state of GPU-a."""
        return self.ask("sample")["GPU-a"]

    def close(self) -> str:
        """End it; return what it logged."""
        return self.process.communicate(timeout=20)[1]


@pytest.fixture
def probe(fake_gpus: Any) -> Iterator[Callable[..., Probe]]:
    """Start probes on the fake GPUs; `library` puts another one in place of the usual."""
    started: list[Probe] = []

    def start(
        library: Path | None = None,
        deadline: str = DEADLINE,
        start: str = START_DEADLINE,
        memory_back: str = MEMORY_BACK,
    ) -> Probe:
        environment = os.environ | fake_gpus.environment
        if library is not None:
            environment["LD_LIBRARY_PATH"] = str(library.parent)
        made = Probe(environment, deadline, start, memory_back)
        started.append(made)
        assert made.receive() == "started"
        return made

    yield start
    for made in started:
        made.close()


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and collect it."""
    process.kill()
    process.wait()


def test_a_gpu_and_its_process(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}", f"other GPU-a {MIB}")
    asked = probe()
    assert asked.ask("reason") is None
    assert asked.ask("devices") == [
        {"index": 0, "uuid": "GPU-a", "name": "Fake GPU", "total": TOTAL}
    ]
    assert asked.sample() == {
        "total": TOTAL,
        "reserved": RESERVED,
        "used": GIB + MIB,
        "free": TOTAL - RESERVED - GIB - MIB,
        "processes": [{"pid": os.getpid(), "memory": GIB}],
        "reason": None,
        "lost": False,
    }


def test_no_library_is_no_gpu_and_no_warning(
    probe: Callable[..., Probe], fake_gpus: Any, tmp_path: Path
) -> None:
    """A false library that cannot be loaded hides a real one."""
    library = tmp_path / "libnvidia-ml.so.1"
    library.write_bytes(b"not a library")
    asked = probe(library)
    assert asked.ask("devices") == []
    assert asked.ask("sample") == {}
    assert "no NVIDIA driver" in asked.ask("reason")
    assert asked.ask("choose", "-") is None
    refused = asked.ask("choose", "gpu:0")["refused"]
    assert "libnvidia-ml.so.1" in refused
    assert refused.endswith("there are: cpu")
    assert asked.close() == ""


def test_a_driver_that_is_not_loaded(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    fake_gpus.add(f"error nvmlInitWithFlags {DRIVER_NOT_LOADED}")
    asked = probe()
    assert asked.ask("devices") == []
    assert asked.ask("reason") == "NVML cannot be used: Driver Not Loaded"
    assert "Driver Not Loaded" in asked.close()


def test_an_old_driver_counts_what_is_reserved_as_used(
    probe: Callable[..., Probe], fake_gpus: Any, nvml_library: Callable[..., Path]
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}")
    state = probe(nvml_library("WITHOUT_MEMORY_V2", "WITHOUT_PROCESSES")).sample()
    assert state["reserved"] is None
    assert state["used"] == GIB + RESERVED
    assert state["free"] == TOTAL - GIB - RESERVED
    assert state["processes"] is None
    assert state["reason"] == "its processes are not known: Function Not Found"


def test_a_driver_with_the_second_list_of_processes_only(
    probe: Callable[..., Probe], fake_gpus: Any, nvml_library: Callable[..., Path]
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}")
    state = probe(nvml_library("WITHOUT_PROCESSES_V3")).sample()
    assert state["processes"] == [{"pid": os.getpid(), "memory": GIB}]
    assert state["reason"] is None


@pytest.mark.parametrize(
    ("told", "flags"),
    [(GIB, "unknown"), (0, ""), (TOTAL + 1, "")],
    ids=["the sentinel", "nothing", "more than there is"],
)
def test_a_process_whose_memory_is_not_told(
    probe: Callable[..., Probe], fake_gpus: Any, told: int, flags: str
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {told} {flags}")
    state = probe().sample()
    assert state["processes"] == [{"pid": os.getpid(), "memory": None}]
    assert state["reason"] == "the memory of its processes is not known"


def test_a_pid_that_cannot_be_makes_the_list_unknown(
    probe: Callable[..., Probe], fake_gpus: Any
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}", "offset 1000000000")
    state = probe().sample()
    assert state["processes"] is None
    assert "makes no sense" in state["reason"]
    assert state["used"] == GIB


def test_no_permission_to_list_processes(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    """What is refused by one version of the function is not asked of the other."""
    fake_gpus.add(f"error {V3} {NO_PERMISSION}", f"error {V2} {UNKNOWN}")
    state = probe().sample()
    assert state["processes"] is None
    assert state["reason"] == "its processes are not known: Insufficient Permissions"


def test_a_gpu_that_is_lost_later(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    fake_gpus.add(f"device GPU-b {TOTAL} {RESERVED}")
    asked = probe()
    assert asked.ask("choose", "-") == "GPU-a"
    fake_gpus.add("lost GPU-a")
    states = asked.ask("sample")
    assert states["GPU-a"] == {
        "total": TOTAL, "reserved": None, "used": None, "free": None, "processes": None,
        "reason": "GPU is lost", "lost": True,
    }  # fmt: skip
    assert states["GPU-b"]["used"] == 0
    assert asked.ask("choose", "-") == "GPU-b"
    assert "gpu:0 is lost" in asked.ask("choose", "gpu:0")["refused"]
    fake_gpus.remove("lost")
    assert not asked.sample()["lost"]
    assert asked.ask("choose", "gpu:0") == "GPU-a"
    fake_gpus.add("lost GPU-a", "lost GPU-b")
    asked.sample()
    assert asked.ask("choose", "-") is None
    assert "every GPU is lost" in asked.close()


def test_a_gpu_that_is_lost_at_the_start_keeps_its_number(
    probe: Callable[..., Probe], fake_gpus: Any
) -> None:
    fake_gpus.add(f"device GPU-b {TOTAL} {RESERVED}", "lost GPU-a")
    asked = probe()
    assert [(d["index"], d["uuid"]) for d in asked.ask("devices")] == [(1, "GPU-b")]
    assert asked.ask("choose", "gpu:1") == "GPU-b"
    assert asked.ask("choose", "gpu:0")["refused"] == (
        "gpu:0 could not be used at the start: GPU is lost; there are: cpu, gpu:1"
    )
    assert "gpu:0 cannot be used: GPU is lost" in asked.close()


def test_mig_devices_stand_for_their_gpu(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    fake_gpus.set(
        f"device GPU-a {TOTAL} {RESERVED}",
        f"mig GPU-a MIG-1 {2 * GIB} 0",
        f"mig GPU-a MIG-2 {GIB} 0",
        f"device GPU-b {TOTAL} {RESERVED}",
        f"process {os.getpid()} MIG-2 {MIB}",
    )
    asked = probe()
    devices = asked.ask("devices")
    assert [(d["index"], d["uuid"], d["total"]) for d in devices] == [
        (0, "MIG-1", 2 * GIB),
        (1, "MIG-2", GIB),
        (2, "GPU-b", TOTAL),
    ]
    states = asked.ask("sample")
    assert states["MIG-1"]["used"] == 0
    assert states["MIG-2"]["used"] == MIB
    assert states["MIG-2"]["processes"] == [{"pid": os.getpid(), "memory": MIB}]
    assert asked.ask("choose", "gpu:1") == "MIG-2"


def test_a_hang_ends_at_the_deadline_and_is_over_when_nvml_answers(
    probe: Callable[..., Probe], fake_gpus: Any
) -> None:
    asked = probe(deadline="0.5")
    fake_gpus.add(f"hang {MEMORY}")
    began = time.monotonic()
    for _ in range(20):  # only the first has to wait
        state = asked.sample()
        assert state["total"] == TOTAL
        assert state["used"] is state["processes"] is None
        assert state["reason"] == "NVML is not answering"
    assert 0.4 < time.monotonic() - began < 5
    assert asked.ask("reason") == "NVML is not answering"
    assert asked.ask("choose", "gpu:0") == "GPU-a"
    fake_gpus.set(f"device GPU-a {TOTAL} {RESERVED}", f"other GPU-a {MIB}")
    while (state := asked.sample())["used"] is None:
        assert state["reason"] == "NVML is not answering"
    assert state["used"] == MIB
    assert asked.ask("reason") is None
    log = asked.close()
    assert log.count("NVML is not answering") == 1


def test_a_hang_at_the_start(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    """GPUs that show up after the wait at the start are found when they do."""
    fake_gpus.add("hang nvmlInitWithFlags")
    asked = probe(start="0.2")
    assert asked.ask("devices") == []
    assert asked.ask("choose", "-") is None
    assert "NVML is not answering" in asked.ask("choose", "gpu:0")["refused"]
    fake_gpus.remove("hang")
    while not (states := asked.ask("sample")):
        assert states == {}
    assert states["GPU-a"]["used"] == 0
    assert asked.ask("choose", "-") == "GPU-a"


def test_a_process_that_hangs_in_nvml_can_end(probe: Callable[..., Probe], fake_gpus: Any) -> None:
    asked = probe()
    fake_gpus.add(f"hang {MEMORY}")
    assert asked.sample()["used"] is None
    asked.close()
    assert asked.process.returncode == 0


def test_memory_is_back_when_its_process_has_ended(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {MIB}", f"process {victim.pid} GPU-a {GIB}")
    asked = probe()
    assert asked.ask("hold", "GPU-a", victim.pid) == GIB
    end(victim)
    assert asked.ask("reclaimed") == {"verdict": "back", "freed": GIB, "reason": ""}


def test_memory_that_comes_back_late(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    """First the dead process is still listed; then it is not, but its bytes are still in use."""
    mine = f"process {victim.pid}"
    fake_gpus.add(f"{mine} GPU-a {GIB} leak")
    asked = probe(memory_back="0")
    patient = probe(memory_back="60")
    for prober in (asked, patient):
        assert prober.ask("hold", "GPU-a", victim.pid) == GIB
    end(victim)
    patient.send("reclaimed")
    still_listed = asked.ask("reclaimed")
    assert still_listed["verdict"] == "held"
    assert str(victim.pid) in still_listed["reason"]
    fake_gpus.set(f"device GPU-a {TOTAL} {RESERVED}", f"other GPU-a {GIB}")
    unaccounted = asked.ask("reclaimed")
    assert unaccounted["verdict"] == "held"
    assert str(GIB) in unaccounted["reason"]
    fake_gpus.remove("other")
    assert asked.ask("reclaimed")["freed"] == GIB
    assert patient.receive() == {"verdict": "back", "freed": GIB, "reason": ""}


def test_memory_back_on_a_gpu_that_is_lost_does_not_wait(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    fake_gpus.add(f"process {victim.pid} GPU-a {GIB}")
    asked = probe(memory_back="1000")
    assert asked.ask("hold", "GPU-a", victim.pid) == GIB
    fake_gpus.add("lost GPU-a")
    end(victim)
    assert asked.ask("reclaimed") == {"verdict": "unknown", "freed": 0, "reason": "GPU is lost"}


def test_memory_back_while_nvml_hangs(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    fake_gpus.add(f"process {victim.pid} GPU-a {GIB}")
    asked = probe(memory_back="0")
    assert asked.ask("hold", "GPU-a", victim.pid) == GIB
    fake_gpus.add(f"hang {V3}")
    end(victim)
    found = asked.ask("reclaimed")
    assert found == {"verdict": "unknown", "freed": 0, "reason": "NVML is not answering"}
    fake_gpus.remove("hang")
    while (found := asked.ask("reclaimed"))["verdict"] == "unknown":
        assert found["reason"] == "NVML is not answering"
    assert found["freed"] == GIB


def test_memory_back_in_a_container_that_sees_the_pids_of_the_host(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    """Its own process is not found in the list, so the GPU's use alone tells."""
    fake_gpus.add("offset 3000000", f"process {victim.pid} GPU-a {GIB}")
    asked = probe(memory_back="0")
    assert asked.ask("hold", "GPU-a", victim.pid) is None
    assert asked.ask("reclaimed", GIB)["verdict"] == "held"
    end(victim)
    assert asked.ask("reclaimed", GIB) == {"verdict": "back", "freed": GIB, "reason": ""}


def test_a_process_that_never_used_the_gpu_gives_nothing_back(
    probe: Callable[..., Probe], fake_gpus: Any, victim: subprocess.Popen[bytes]
) -> None:
    fake_gpus.add(f"process {os.getpid()} GPU-a {GIB}")
    asked = probe(memory_back="0")
    assert asked.ask("hold", "GPU-a", victim.pid) == 0
    end(victim)
    assert asked.ask("reclaimed") == {"verdict": "back", "freed": 0, "reason": ""}


def test_memory_on_a_gpu_that_is_not_there(
    probe: Callable[..., Probe], victim: subprocess.Popen[bytes]
) -> None:
    asked = probe(memory_back="0")
    assert asked.ask("hold", "GPU-x", victim.pid) is None
    found = asked.ask("reclaimed")
    assert found["verdict"] == "unknown"
    assert "GPU-x" in found["reason"]


def test_only_one_module_imports_pynvml() -> None:
    folders = ("supervisor", "worker", "client", "cli")
    root = Path(__file__).parents[2]
    sources = [path for folder in folders for path in (root / folder).rglob("*.py")]
    found = [p.name for p in sources if "import pynvml" in p.read_text()]
    assert found == ["nvml.py"]
