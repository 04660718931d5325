"""`modelsup profile` against a real supervisor: what it measures, and that it leaves nothing."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.cli.profile.measure import STAGES

from tests.conftest import CLI, GIB, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

MB = 10**6
SLACK = 4 * MB  # what a worker's own Python takes, more or less of it in each
LOAD, CALL = 30 * MB, 12 * MB
HUNGRY = {"on_load": [f"leak:{LOAD}"], "on_call": [f"leak:{CALL}"]}
COUNTS = ("--instances", "1,2", "--batch", "1")  # one call each
POOL = [sys.executable, "-m", "modelsup.worker.pool"]


def assert_nothing_is_loaded(supervisor: Any) -> None:
    assert supervisor.client.workers() == []
    assert supervisor.client.clients() == []
    assert [m.name for m in supervisor.client.models() if m.name.startswith("profile-")] == []


def near(size: int, expected: int) -> bool:
    return abs(size - expected) < SLACK


def test_a_source_is_measured_by_stage_and_by_instance(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    source = echo_model(**HUNGRY)
    done = shared_supervisor.run("profile", source, *COUNTS, "--json")
    found = json.loads(done.stdout)
    measured, advice = found["measured"], found["advice"]
    stages = measured["stages"]
    assert tuple(stages) == STAGES
    assert near(stages["load"] - stages["fork"], LOAD)
    assert near(stages["first_call"] - stages["load"], CALL)
    assert measured["source"] == source
    one, two = measured["rows"]
    assert (one["instances"], two["instances"]) == (1, 2)
    assert near(two["before_bytes"], 2 * one["before_bytes"])
    assert near(two["after_bytes"] - two["before_bytes"], 2 * CALL)
    assert two["proportional_bytes"] > one["proportional_bytes"] + LOAD
    assert measured["shared"]["clients"] == 2
    assert near(measured["shared"]["private_bytes"], one["private_bytes"])
    assert measured["gpu"] is None
    assert advice["ram_bytes"] >= 1.25 * stages["peak"]
    assert advice["fits"] == measured["budget_bytes"] // advice["ram_bytes"]
    assert_nothing_is_loaded(shared_supervisor)
    assert shared_supervisor.client.models() == []


def test_the_pool_is_measured_beside_it(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    done = shared_supervisor.run("profile", echo_model(**HUNGRY), *COUNTS, "--json")
    pool = json.loads(done.stdout)["pool"]
    one, two = pool["rows"]
    assert pool["reason"] is None
    assert near(one["after_bytes"] - one["before_bytes"], CALL)
    assert near(two["after_bytes"] - one["after_bytes"], LOAD + CALL)
    assert two["peak_bytes"] >= two["after_bytes"]


def test_a_model_of_the_catalogue_stays_as_it_is(
    shared_supervisor: Any, echo_model: Callable[..., str], tmp_path: Path
) -> None:
    client = shared_supervisor.client
    worker = client.load("mine", echo_model(**HUNGRY), threads=1, pin=True).worker
    page = tmp_path / "page.html"
    arguments = ["--instances", "1", "--no-pool", "--html", str(page)]
    done = shared_supervisor.run("profile", "mine", *arguments)
    assert "after the first call" in done.stdout
    assert "the pool was not measured in full: --no-pool was given" in done.stdout
    assert "loading instance 1 of 1" in done.stderr
    assert "Memory of mine" in page.read_text()
    assert [w.id for w in client.workers()] == [worker]
    assert [m.name for m in client.models()] == ["mine"]


def test_it_stops_before_others_would_have_to_make_room(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client = shared_supervisor.client
    client.load("big", echo_model("big"))  # so that the forkserver is there, and counted
    client.unload("big")
    budget = client.memory().host.budget_bytes
    client.load("big", ram=budget - 110 * MB)
    source = echo_model("hungry", on_load=[f"leak:{70 * MB}"])
    done = shared_supervisor.run("profile", source, "--instances", "1,2", "--no-pool", "--json")
    measured = json.loads(done.stdout)["measured"]
    assert [row["instances"] for row in measured["rows"]] == [1]
    assert measured["notes"] == ["stopped at 1 instances: one more does not fit beside big"]
    assert [w.model for w in client.workers()] == ["big"]


def test_on_a_gpu_it_recommends_a_share_of_it(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str], fake_gpus: Any
) -> None:
    supervisor = start_supervisor(environment=fake_gpus.environment)
    source = echo_model(fake_gpu=str(fake_gpus.path), on_load=[f"gpu:{GIB}"])
    found = json.loads(supervisor.run("profile", source, "--instances", "1,2", "--json").stdout)
    gpu, advice = found["measured"]["gpu"], found["advice"]
    assert (gpu["uuid"], gpu["total_bytes"], gpu["used_bytes"]) == ("GPU-a", 8 * GIB, GIB)
    assert (advice["gpu_memory_fraction"], advice["gpu_reason"]) == (0.16, None)
    assert advice["limited_by"] == "gpu"
    assert 1 <= advice["fits"] <= 6
    assert_nothing_is_loaded(supervisor)


def test_what_cannot_be_loaded_leaves_nothing(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    source = echo_model(on_load=["fail:no such layer"])
    failed = shared_supervisor.run("profile", source, check=False)
    assert (failed.returncode, "no such layer" in failed.stderr) == (6, True)
    assert_nothing_is_loaded(shared_supervisor)
    assert shared_supervisor.client.models() == []


def test_neither_a_model_nor_a_file(shared_supervisor: Any) -> None:
    for name in ("nobody", "no/such/file.keras"):
        failed = shared_supervisor.run("profile", name, check=False)
        assert failed.returncode == 4
        assert f"{name} is neither a model that the supervisor knows nor a file" in failed.stderr


def test_ctrl_c_in_the_middle_of_a_load_leaves_nothing(
    shared_supervisor: Any, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    gate = fifo("gate")
    source = echo_model(on_load=[f"gate:{gate}"])
    environment = {**shared_supervisor.environment, "MODELSUP_URL": shared_supervisor.url}
    command = [*CLI, "profile", source, "--instances", "1"]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        with gate.open("wb"):  # the worker is at the gate
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
        assert process.stderr is not None
        said = process.stderr.read().split("\n")
    assert [line for line in said if line][-2:] == ["releasing what was loaded", "interrupted"]
    assert_nothing_is_loaded(shared_supervisor)
    assert shared_supervisor.client.models() == []


def test_a_pool_process_that_dies_is_told_of(echo_model: Callable[..., str]) -> None:
    command = [*POOL, echo_model(on_load=["crash"]), "--runtime", "echo", "--instances", "1,2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    rows = json.loads(done.stdout)["rows"]
    assert rows == [
        {"instances": n, "error": f"the process was killed by signal {signal.SIGSEGV}"}
        for n in (1, 2)
    ]


def test_a_pool_that_cannot_load_says_why(echo_model: Callable[..., str]) -> None:
    command = [*POOL, echo_model(on_load=["fail:no such layer"]), "--runtime", "echo"]
    done = subprocess.run(
        [*command, "--instances", "1"], capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout)["rows"] == [
        {"instances": 1, "error": "LoadFailed: no such layer"}
    ]


def test_the_pool_ends_with_who_started_it(
    echo_model: Callable[..., str], fifo: Callable[[str], Path], tmp_path: Path
) -> None:
    gate = fifo("gate")
    far_end, near_end = os.pipe()
    command = [*POOL, echo_model(on_load=[f"gate:{gate}"]), "--runtime", "echo"]
    process = subprocess.Popen(
        [*command, "--lifeline", str(far_end)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        pass_fds=(far_end,),
        start_new_session=True,
    )
    os.close(far_end)
    with contextlib.suppress(BrokenPipeError), gate.open("wb"):  # the instance is at the gate
        (child,) = psutil.Process(process.pid).children()
        os.close(near_end)
        assert process.wait(30) == -signal.SIGKILL
        wait_until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, 5)


@pytest.mark.tensorflow
def test_a_keras_model(start_supervisor: Callable[..., Any], tiny_keras: Path) -> None:
    supervisor = start_supervisor("--threads", "1")
    done = supervisor.run("profile", str(tiny_keras), "--instances", "1,2", "--json")
    found = json.loads(done.stdout)
    measured, pool = found["measured"], found["pool"]
    stages = measured["stages"]
    assert measured["framework"].startswith("tensorflow ")
    assert 0 < stages["fork"] < stages["load"] < stages["peak"]
    assert stages["first_call"] > stages["load"]
    assert [row["instances"] for row in measured["rows"]] == [1, 2]
    assert [row["instances"] for row in pool["rows"]] == [1, 2]
    assert pool["reason"] is None
    assert pool["framework_bytes"] > 100 * MB
    assert pool["rows"][0]["after_bytes"] < pool["framework_bytes"]
    assert_nothing_is_loaded(supervisor)
