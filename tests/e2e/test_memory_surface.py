"""What people and programs see of the memory: plans, refusals, budgets, charges."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import DoesNotFit

from tests.conftest import CLI

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = "1000TB"
GIB = 2**30
CONTEXT = 450 * 10**6  # bytes: the default of gpu_context_memory


def test_what_is_larger_than_the_machine_is_refused_with_its_plan(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    with pytest.raises(DoesNotFit, match="it needs 1000000000 MB of host") as caught:
        shared_supervisor.client.load("m", echo_model("m"), ram=HUGE)
    plan = caught.value.plan
    assert plan is not None
    assert (plan["fits"], plan["charges"]) == ("no", {"host": 10**15})
    assert shared_supervisor.run("load", "m", check=False).returncode == 5


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/models/m:predict", {"instances": [1.0]}),
        (
            "v2/models/m/infer",
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]},
        ),
    ],
)
def test_a_prediction_of_what_does_not_fit(
    shared_supervisor: Any, echo_model: Callable[..., str], path: str, body: Any
) -> None:
    shared_supervisor.client.add_model("m", echo_model("m"), ram=HUGE)
    answer = requests.post(f"{shared_supervisor.url}/{path}", json=body, timeout=60)
    assert answer.status_code == 507
    assert answer.headers["X-Modelsup-Error"] == "does_not_fit"
    assert "m does not fit" in json.loads(answer.content)["error"]


def test_a_plan_says_what_would_happen_and_does_nothing(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start_supervisor("--minimum-residence", "0")
    client = supervisor.client
    most = client.memory().host.limit_bytes
    assert most is not None
    client.load("old", echo_model("old"), ram=int(most * 0.6))
    client.add_model("new", echo_model("new"), ram=int(most * 0.5))

    plan = client.plan("new")

    assert (plan.fits, plan.device, plan.charges) == ("after eviction", None, {"host": most // 2})
    assert [victim.model for victim in plan.victims] == ["old"]
    assert [worker.model for worker in client.workers()] == ["old"]
    assert (client.model("new").state, client.model("new").version) == ("unloaded", None)
    assert "unloads old" in supervisor.run("plan", "new").stdout
    client.swap("anna", "old")
    assert "old" in supervisor.run("plan", "new", check=False).stdout
    assert supervisor.run("plan", "new", check=False).returncode == 5
    assert client.plan("new").blockers[0].reason == "is held by anna"
    assert client.plan("old").reason == "it is ready already"


def test_a_plan_of_what_is_not_there(shared_supervisor: Any) -> None:
    assert shared_supervisor.run("plan", "nobody", check=False).returncode == 4


def test_workers_show_what_they_are_charged(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client = shared_supervisor.client
    client.load("m", echo_model("m"), ram="300MB")
    (worker,) = client.workers()
    assert worker.charges == {"host": 300 * 10**6}
    assert worker.framework.startswith("echo")
    assert worker.memory_stages.keys() >= {"load", "steady", "peak"}
    memory = client.memory()
    assert memory.host.charged_bytes == 300 * 10**6
    assert memory.host.own_bytes > 0
    assert memory.host.budget_bytes + memory.host.own_bytes < memory.host.limit_bytes
    assert (memory.gpus, memory.queue) == ((), ())
    header, row = shared_supervisor.run("ps").stdout.splitlines()
    assert row[header.index("CHARGED") :].startswith("300 MB ")
    client.unload("m")
    assert client.memory().host.charged_bytes == 0


def test_the_memory_of_a_gpu_is_split_into_ours_others_and_free(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    fake_gpus.add(f"process 7 GPU-a {GIB}")
    client = start_supervisor(environment=fake_gpus.environment).client
    model = echo_model("m", fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{2 * GIB}"])
    client.load("m", model, gpu_memory=2 * GIB)
    (worker,) = client.workers()
    (gpu,) = client.memory().gpus
    assert (gpu.uuid, gpu.index, gpu.total_bytes) == ("GPU-a", 0, 8 * GIB)
    assert gpu.charged_bytes == worker.charges["GPU-a"] == 2 * GIB + CONTEXT
    assert gpu.budget_bytes == 8 * GIB - int(8 * GIB * 0.05)
    assert (gpu.workers_bytes, gpu.others_bytes) == (2 * GIB, GIB)
    assert {p.pid: (p.memory_bytes, p.worker) for p in gpu.processes} == {
        7: (GIB, None),
        worker.pid: (2 * GIB, worker.id),
    }


def test_a_driver_that_hangs_does_not_hold_up_the_answer(
    start_supervisor: Callable[..., Any], fake_gpus: Any
) -> None:
    client = start_supervisor(environment=fake_gpus.environment).client
    hang = "hang nvmlDeviceGetMemoryInfo_v2"
    fake_gpus.add(hang)
    (gpu,) = client.memory().gpus
    assert (gpu.total_bytes, gpu.used_bytes, gpu.others_bytes) == (8 * GIB, None, None)
    assert gpu.reason == "NVML is not answering"
    assert gpu.budget_bytes is not None
    fake_gpus.remove(hang)


def test_events_tell_of_an_eviction_and_of_who_waits(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start_supervisor("--minimum-residence", "0")
    client = supervisor.client
    most = client.memory().host.limit_bytes
    client.load("old", echo_model("old"), ram=int(most * 0.6))
    client.load("new", echo_model("new"), ram=int(most * 0.5))
    client.swap("anna", "new")
    client.release("anna")

    told = [(e.message, e.facts.get("model"), e.facts) for e in client.events()]

    (eviction,) = [facts for message, _, facts in told if message == "evicting"]
    assert eviction["model"] == "old"
    assert eviction["reason"].startswith("room for new: idle for")
    assert ("a model waits for room", "new") in [fact[:2] for fact in told]
    (gone, _) = [facts for message, _, facts in told if message == "worker gone"]
    assert (gone["model"], gone["outcome"], gone["verified"]) == ("old", "drained", True)
    assert gone["freed_bytes"] > 0
    leases = [facts["client"] for message, _, facts in told if "lease" in message]
    assert leases == ["anna"]
    lines = supervisor.run("events", "--json").stdout.splitlines()
    assert [json.loads(line)["message"] for line in lines] == [message for message, _, _ in told]
    assert "evicting  model=old" in supervisor.run("events").stdout


def test_events_are_followed_to_the_end_of_the_supervisor(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start_supervisor()
    supervisor.client.load("m", echo_model("m"))
    with closing(supervisor.client.events(follow=True)) as events:
        assert "worker ready" in next_ones(events, "worker ready")
        supervisor.client.unload("m")
        assert next_ones(events, "worker gone")[-2:] == ["worker stopping", "worker gone"]
        supervisor.process.terminate()
        assert list(events) == []


def next_ones(events: Any, last: str) -> list[str]:
    """Return the messages of the events that come, up to a certain one."""
    found = []
    for event in events:
        found.append(event.message)
        if event.message == last:
            break
    return found


def test_top_shows_gpus_workers_and_leases(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    fake_gpus.add(f"process 7 GPU-a {GIB}")
    supervisor = start_supervisor(environment=fake_gpus.environment)
    model = echo_model("m", fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{2 * GIB}"])
    supervisor.client.load("m", model, gpu_memory=2 * GIB)
    supervisor.client.swap("anna", "m")
    picture = supervisor.run("top").stdout
    (gpu,) = [line for line in picture.splitlines() if line.startswith("gpu:0")]
    assert gpu.split()[2:6] == ["2.1", "GB", "1.1", "GB"]
    assert "anna" in picture
    shown = json.loads(supervisor.run("top", "--json").stdout)
    assert shown.keys() == {"status", "memory", "workers", "clients"}
    assert shown["memory"]["gpus"][0]["workers_bytes"] == 2 * GIB


def test_top_on_a_terminal_is_live_until_it_is_interrupted(
    supervisor: Any, echo_model: Callable[..., str]
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*CLI, "top", "--interval", "50ms"],
        env={**supervisor.environment, "MODELSUP_URL": supervisor.url, "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    try:
        read_until(ours, b"BUDGET")
        supervisor.client.load("watched", echo_model("watched"))
        read_until(ours, b"watched")
        process.send_signal(signal.SIGINT)
        draining = threading.Thread(target=read_until, args=(ours, None))
        draining.start()
        assert process.wait(20) == 0
        draining.join()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, text: bytes | None) -> None:
    """Read what is written to a terminal up to this text; None: to the end."""
    seen = b""
    while text is None or text not in seen:
        readable, _, _ = select.select([terminal], [], [], 30)
        assert readable, seen
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # nobody has the other side open any more
            piece = b""
        if not piece:
            assert text is None, seen
            return
        seen += piece
