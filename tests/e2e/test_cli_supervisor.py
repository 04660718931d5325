"""The command line against a real supervisor: from `start --detach` to `stop`, with echo models."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "modelsup.cli"]


class Shell:
    """Runs `modelsup` with the user's folders below `home`, as a person would."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("MODELSUP_", "XDG_"))},
            "HOME": str(home),
            "MODELSUP_PORT": "0",
            "MODELSUP_GRPC_PORT": "",
        }

    def run(self, *arguments: str, expect: int = 0, stdin: str = "") -> str:
        """Return stdout, or stderr where another exit code than 0 is expected."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            env=self.environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=100,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stderr if expect else done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    @contextlib.contextmanager
    def detached(self, *flags: str) -> Iterator[dict[str, Any]]:
        """Start a supervisor in the background; stop it if the test did not."""
        started = self.json("start", "--detach", *flags)
        self.environ["MODELSUP_URL"] = started["url"]
        yield started
        if not _is_gone(started["pid"]):
            self.run("stop")


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.fixture
def home_shell(tmp_path: Path) -> Shell:
    """A shell that knows of no supervisor yet."""
    return Shell(tmp_path)


@pytest.fixture
def shell(home_shell: Shell, supervisor: Any) -> Shell:
    """A shell that knows where the supervisor of the test is."""
    home_shell.environ["MODELSUP_URL"] = supervisor.url
    return home_shell


def test_the_commands_of_a_model(shell: Shell) -> None:
    loaded = shell.json("load", "e1", "--runtime", "echo")
    assert loaded["state"] == "ready"
    assert shell.json("ps")[0]["id"] == loaded["worker"]
    answer = json.loads(shell.run("predict", "e1", "@-", stdin="[[1, 2]]"))
    assert answer == {"predictions": [[1.0, 2.0]]}
    assert shell.json("models")[0]["state"] == "ready"
    assert shell.json("status")["status"]["models"] == {"known": 1, "loaded": 1}


def test_unload_gives_a_verified_receipt(shell: Shell) -> None:
    shell.run("load", "e1", "--runtime", "echo")

    receipt = shell.json("unload", "e1")

    assert receipt["verified"] is True
    assert receipt["outcome"] == "drained"
    assert receipt["freed"]["host_bytes"] > 0
    assert "not loaded" in shell.run("unload", "e1", expect=1)


def test_a_client_swaps_its_own_model(shell: Shell) -> None:
    shell.run("load", "e1", "--runtime", "echo")
    shell.run("swap", "john", "e1")
    assert "held by: john" in shell.run("unload", "e1", expect=1)

    swap = shell.json("swap", "john", "e2", "--runtime", "echo")

    assert (swap["previous"], swap["model"]) == ("e1", "e2")
    assert json.loads(shell.run("predict", "--client", "john", "[[3]]")) == {"predictions": [[3.0]]}
    assert [lease["id"] for lease in shell.json("clients")] == ["john"]
    assert shell.json("release", "john")["receipt"]["model"] == "e2"
    assert "john" in shell.run("release", "john", expect=4)


def test_an_array_goes_in_and_comes_out(shell: Shell, tmp_path: Path) -> None:
    shell.run("load", "e1", "--runtime", "echo")
    array = np.arange(6, dtype=np.float64).reshape(2, 3) / 4
    np.save(tmp_path / "x.npy", array)

    assert json.loads(shell.run("predict", "e1", f"@{tmp_path / 'x.npy'}")) == array.tolist()
    shell.run("predict", "e1", f"@{tmp_path / 'x.npy'}", "--output", str(tmp_path / "y.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), array.astype(np.float32))


def test_a_model_that_cannot_be_loaded_is_6_with_its_reason(shell: Shell, tmp_path: Path) -> None:
    broken = tmp_path / "broken.echo"
    broken.write_text(json.dumps({"on_load": ["fail:the weights are missing"]}))

    assert "the weights are missing" in shell.run("load", "m", str(broken), expect=6)
    assert shell.json("models")[0]["state"] == "failed"


def test_unknown_models_and_bad_requests(shell: Shell) -> None:
    assert "nope" in shell.run("predict", "nope", "[1]", expect=4)
    assert "nope" in shell.run("load", "nope", expect=4)
    assert "does not exist" in shell.run("load", "m", "/nowhere.keras", expect=2)
    assert "ram" in shell.run("load", "m", "--runtime", "echo", "--ram", "lots", expect=2)


def test_logs_follow_until_interrupted(shell: Shell) -> None:
    shell.run("load", "e1", "--runtime", "echo")
    follower = subprocess.Popen(
        [*COMMAND, "logs", "e1", "-f"],
        env={**shell.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert follower.stderr is not None
    body = {"signature_name": "command", "inputs": {"command": ["print:hello there"]}}
    with follower:
        shell.run("predict", "e1", json.dumps(body))
        assert any("hello there" in line for line in follower.stdout)
        follower.send_signal(signal.SIGINT)
        assert follower.stderr.read().strip() == "interrupted"
    assert follower.returncode == 130


def test_stop_returns_when_all_processes_are_gone(home_shell: Shell) -> None:
    with home_shell.detached() as started:
        home_shell.run("load", "e1", "--runtime", "echo")
        worker = home_shell.json("ps")[0]["pid"]

        assert "has stopped" in home_shell.run("stop")

        assert _is_gone(started["pid"])
        assert _is_gone(worker)
        assert "modelsup start" in home_shell.run("ps", expect=3)
        assert "modelsup start" in home_shell.run("stop", expect=3)


def test_a_second_supervisor_says_why_it_cannot_start(home_shell: Shell) -> None:
    with home_shell.detached() as started:
        said = home_shell.run("start", "--detach", expect=1)
        assert f"another supervisor (pid {started['pid']})" in said

        port = started["url"].rpartition(":")[2]
        other = str(home_shell.home / "other")
        said = home_shell.run("start", "--port", port, "--state-dir", other, "--detach", expect=1)
        assert f"cannot listen on 127.0.0.1:{port}" in said


def test_flags_reach_the_supervisor_in_the_background(home_shell: Shell) -> None:
    with home_shell.detached("--no-autoload", "--log-format", "json") as started:
        home_shell.run("load", "e1", "--runtime", "echo")
        home_shell.run("unload", "e1")
        assert "e1" in home_shell.run("predict", "e1", "[[1]]", expect=4)
    first, *_ = Path(started["log"]).read_text().splitlines()
    assert isinstance(json.loads(first), dict)


def test_in_the_foreground_ctrl_c_stops_it(home_shell: Shell) -> None:
    process = subprocess.Popen(
        [*COMMAND, "start"],
        env=home_shell.environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process:
        assert any(line.startswith("modelsup is ready at") for line in process.stderr)
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 0
    assert "Traceback" not in rest
