"""What scripts rely on: each command's data on stdout, its talk on stderr, its exit code."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.conftest import CLI, clean_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conftest import Supervisor

RECEIPT = {
    "model",
    "worker",
    "outcome",
    "in_flight_completed",
    "in_flight_aborted",
    "freed",
    "verified",
    "reason",
    "seconds",
}
NOBODY = "http://127.0.0.1:9"  # the discard port: nothing of ours listens there


def data(done: Any) -> Any:
    """Return the JSON on stdout of a command that had nothing to say."""
    assert done.stderr == ""
    return json.loads(done.stdout)


def refused(supervisor: Supervisor, code: int, *arguments: str) -> str:
    """Run a command that must fail with this exit code; return what it said."""
    done = supervisor.run(*arguments, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    said: str = done.stderr
    return said


@pytest.fixture
def model(shared_supervisor: Supervisor) -> str:
    """A loaded echo model that takes two-dimensional "x"."""
    return shared_supervisor.client.load("m", runtime="echo").model


def test_load_tells_what_it_did(
    shared_supervisor: Supervisor, echo_model: Callable[..., str]
) -> None:
    source = echo_model("first")

    loaded = data(shared_supervisor.run("load", "first", source, "--json"))

    assert loaded["model"] == "first"
    assert loaded["state"] == "ready"
    assert loaded["version"] == "1"
    assert loaded["already_loaded"] is False
    assert loaded["memory"]["host_bytes"] > 0
    assert {"fork", "load", "warm", "total"} <= loaded["seconds"].keys()
    again = shared_supervisor.run("load", "first")
    assert "already loaded" in again.stdout
    assert again.stderr == ""


def test_predict_takes_json_files_and_arrays(
    shared_supervisor: Supervisor, model: str, tmp_path: Path
) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    rows = json.dumps({"instances": array.tolist()})
    (tmp_path / "rows.json").write_text(rows)
    np.save(tmp_path / "array.npy", array)

    from_argument = data(shared_supervisor.run("predict", model, rows))
    from_json = data(shared_supervisor.run("predict", model, "@rows.json", cwd=tmp_path))
    from_array = data(shared_supervisor.run("predict", model, f"@{tmp_path / 'array.npy'}"))

    assert from_argument == from_json == {"predictions": array.tolist()}
    assert from_array == array.tolist()


def test_the_lists_agree_with_each_other(shared_supervisor: Supervisor, model: str) -> None:
    swap = data(shared_supervisor.run("swap", "anna", model, "--json"))

    (worker,) = data(shared_supervisor.run("ps", "--json"))
    (lease,) = data(shared_supervisor.run("clients", "--json"))
    known = {entry["name"]: entry for entry in data(shared_supervisor.run("models", "--json"))}
    status = data(shared_supervisor.run("status", "--json"))

    assert worker["id"] == swap["worker"] == lease["worker"]
    assert worker["state"] == "ready"
    assert worker["clients"] == known[model]["clients"] == ["anna"]
    assert worker["memory"]["pss_bytes"] > 0
    assert known[model]["workers"] == [worker["id"]]
    assert (lease["id"], lease["model"]) == ("anna", model)
    assert status["status"]["pid"] == shared_supervisor.pid
    assert status["status"]["workers"] == status["status"]["clients"] == 1
    assert status["memory"]["host"]["workers_bytes"] >= worker["memory"]["uss_bytes"]
    for command in ("ps", "clients", "models", "status"):
        table = shared_supervisor.run(command)
        assert table.stderr == ""
        assert len(table.stdout.splitlines()) > 1


def test_a_receipt_has_the_keys_of_the_contract(shared_supervisor: Supervisor) -> None:
    shared_supervisor.client.load("m", runtime="echo")

    receipt = data(shared_supervisor.run("unload", "m", "--json"))

    assert receipt.keys() == RECEIPT
    assert receipt["freed"].keys() == {"host_bytes", "gpu_bytes"}
    assert receipt["seconds"].keys() == {"drain", "exit", "memory_back", "total"}
    assert (receipt["model"], receipt["outcome"], receipt["verified"]) == ("m", "drained", True)


def test_a_receipt_in_words(shared_supervisor: Supervisor) -> None:
    shared_supervisor.client.load("m", runtime="echo")
    done = shared_supervisor.run("unload", "m")
    assert done.stdout.startswith("m: freed ")
    assert done.stdout.endswith(", verified\n")
    assert done.stderr == ""


def test_swap_gives_the_receipt_of_the_previous_model(shared_supervisor: Supervisor) -> None:
    first = data(shared_supervisor.run("swap", "otto", "one", "--runtime", "echo", "--json"))
    assert (first["previous"], first["receipt"]) == (None, None)

    second = data(shared_supervisor.run("swap", "otto", "two", "--runtime", "echo", "--json"))

    assert (second["previous"], second["receipt"]["model"]) == ("one", "one")
    assert second["receipt"].keys() == RECEIPT
    assert data(shared_supervisor.run("release", "otto", "--json"))["receipt"]["model"] == "two"


def test_logs_are_the_workers_own_lines(shared_supervisor: Supervisor, model: str) -> None:
    body = {"signature_name": "command", "inputs": {"command": ["print:one", "print:two"]}}
    shared_supervisor.run("predict", model, json.dumps(body))

    done = shared_supervisor.run("logs", model, "--tail", "2")

    assert done.stdout.splitlines() == ["one", "two"]


def test_exit_1_failed(shared_supervisor: Supervisor, model: str) -> None:
    shared_supervisor.client.swap("anna", model)
    assert "anna" in refused(shared_supervisor, 1, "unload", model)
    shared_supervisor.client.release("anna")
    assert "not loaded" in refused(shared_supervisor, 1, "unload", model)


def test_exit_2_usage(shared_supervisor: Supervisor, model: str, tmp_path: Path) -> None:
    assert "No such command 'fetch'" in refused(shared_supervisor, 2, "fetch", "m")
    assert "NAME" in refused(shared_supervisor, 2, "load")
    assert "nope.npy" in refused(shared_supervisor, 2, "predict", model, "@nope.npy")
    assert "neither JSON nor" in refused(shared_supervisor, 2, "predict", model, "[1,")
    assert "shape" in refused(shared_supervisor, 2, "predict", model, "[1]")
    assert "port" in refused(shared_supervisor, 2, "start", "--port", "99999")
    assert "does not exist" in refused(shared_supervisor, 2, "load", "x", str(tmp_path / "x.keras"))


def test_exit_3_supervisor_not_reachable(shared_supervisor: Supervisor) -> None:
    for command in (("ps",), ("status",), ("stop",), ("predict", "m", "[[1]]")):
        said = refused(shared_supervisor, 3, "--url", NOBODY, *command)
        assert NOBODY in said
        assert "modelsup start" in said


def test_exit_4_no_such_model_or_client(shared_supervisor: Supervisor) -> None:
    assert "nope" in refused(shared_supervisor, 4, "predict", "nope", "[[1]]")
    assert "nope" in refused(shared_supervisor, 4, "unload", "nope")
    assert "nope" in refused(shared_supervisor, 4, "logs", "nope")
    assert "nobody" in refused(shared_supervisor, 4, "release", "nobody")
    assert "nobody" in refused(shared_supervisor, 4, "predict", "--client", "nobody", "[[1]]")


def test_exit_6_load_failed(shared_supervisor: Supervisor, echo_model: Callable[..., str]) -> None:
    source = echo_model("broken", on_load=["print:reading the layers", "fail:layer 7 is unknown"])
    said = refused(shared_supervisor, 6, "load", "broken", source)
    assert "layer 7 is unknown" in said
    assert "| reading the layers" in said  # the worker's log
    assert "layer 7 is unknown" in refused(shared_supervisor, 6, "predict", "broken", "[[1]]")


def test_a_failed_swap_keeps_the_clients_model(
    shared_supervisor: Supervisor, model: str, echo_model: Callable[..., str]
) -> None:
    shared_supervisor.client.swap("anna", model)
    source = echo_model("broken", on_load=["fail:layer 7 is unknown"])

    assert "layer 7" in refused(shared_supervisor, 6, "swap", "anna", "broken", source)
    assert "nope" in refused(shared_supervisor, 4, "swap", "anna", "nope")

    assert shared_supervisor.client.client("anna").model == model
    answer = data(shared_supervisor.run("predict", "--client", "anna", "[[1, 2]]"))
    assert answer == {"predictions": [[1.0, 2.0]]}


def test_a_crash_is_told_and_the_next_prediction_works(
    shared_supervisor: Supervisor, model: str
) -> None:
    crash = json.dumps({"signature_name": "command", "inputs": {"command": ["crash"]}})
    said = refused(shared_supervisor, 1, "predict", model, crash)
    assert "at the second try" in said
    assert "SIGSEGV" in said
    assert data(shared_supervisor.run("predict", model, "[[1, 2]]"))
    (worker,) = data(shared_supervisor.run("ps", "--json"))
    assert worker["restarts"] == 2


def test_exit_7_timed_out_and_the_load_goes_on(
    shared_supervisor: Supervisor, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    gate = fifo("gate")
    source = echo_model("slow", on_load=[f"gate:{gate}"])

    said = refused(shared_supervisor, 7, "load", "slow", source, "--wait", "50ms")

    assert "load goes on" in said
    with gate.open("wb"):
        pass
    assert "ready" in shared_supervisor.run("load", "slow").stdout
    hang = {"signature_name": "command", "inputs": {"command": [f"gate:{gate}"]}}
    said = refused(shared_supervisor, 7, "predict", "slow", json.dumps(hang), "--timeout", "50ms")
    assert "the 0.05 s of the request are up" in said
    with gate.open("wb"):
        pass


def test_no_wait_returns_at_once(
    shared_supervisor: Supervisor, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    gate = fifo("gate")
    source = echo_model("later", on_load=[f"gate:{gate}"])

    started = data(shared_supervisor.run("load", "later", source, "--no-wait", "--json"))

    assert started["state"] in {"starting", "loading"}
    assert started["worker"] is None
    with gate.open("wb"):
        pass
    assert shared_supervisor.client.load("later").state == "ready"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_print(shared_supervisor: Supervisor, shell: str) -> None:
    done = shared_supervisor.run("completion", shell)
    assert "_MODELSUP_COMPLETE" in done.stdout
    assert done.stderr == ""


def test_completion_knows_the_models(shared_supervisor: Supervisor, model: str) -> None:
    words = {
        "_MODELSUP_COMPLETE": "bash_complete",
        "COMP_WORDS": "modelsup unload ",
        "COMP_CWORD": "2",
        "MODELSUP_URL": shared_supervisor.url,
    }
    # click takes the program's name for the variable's, so it must be the installed command.
    command = Path(CLI[0]).with_name("modelsup")
    done = subprocess.run(
        [command],
        env={**shared_supervisor.environment, **words},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert f"plain,{model}" in done.stdout.splitlines()


def test_start_in_the_background_and_stop(tmp_path: Path) -> None:
    environment = clean_environment(tmp_path)
    state = tmp_path / "state"

    def run(*arguments: str) -> Any:
        command = [*CLI, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path
        )

    flags = ("--port", "0", "--state-dir", "state", "--detach", "--json")
    started = data(run("start", *flags))
    environment["MODELSUP_URL"] = started["url"]
    try:
        status = data(run("status", "--json"))["status"]
        assert (status["pid"], status["state_dir"]) == (started["pid"], str(state))
        os.kill(started["pid"], 0)
    finally:
        stopped = data(run("stop", "--json"))
    assert stopped == {"pid": started["pid"], "stopped": True}
    assert run("status").returncode == 3
