"""What the machine refuses: files, ports, disk; and state that was damaged meanwhile."""

from __future__ import annotations

import resource
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import ModelsupError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def start_in_vain(state_dir: Path, port: int = 0, *more: str) -> str:
    """Run a `start` that must fail at once; return its one sentence."""
    flags = ["--port", str(port), "--state-dir", str(state_dir), *more]
    done = subprocess.run(
        [sys.executable, "-m", "modelsup.cli", "start", *flags],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_second_supervisor_on_a_state_folder(shared_supervisor: Any) -> None:
    said = start_in_vain(shared_supervisor.state_dir)
    assert f"another supervisor (pid {shared_supervisor.pid}) uses the state folder" in said
    assert "--state-dir" in said
    assert shared_supervisor.client.status().state == "running"


def test_port_that_is_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        said = start_in_vain(tmp_path / "state", other.getsockname()[1])
    assert "Address already in use" in said
    assert "--port" in said


def test_state_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said = start_in_vain(tmp_path / "file" / "state")
    assert f"the state folder {tmp_path}/file/state cannot be used: Not a directory" in said


def test_run_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Something else is where the workers' temporary folders are to be."""
    (tmp_path / "run").write_text("")
    said = start_in_vain(tmp_path)
    assert f"{tmp_path}/run" in said


def test_state_that_cannot_be_understood(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """An option that this release does not know: a sentence, and the state stays as it is."""
    first = start_supervisor()
    first.client.add_model("m", echo_model())
    first.stop()
    with closing(sqlite3.connect(first.state_dir / "state.db")) as database, database:
        database.execute("""UPDATE models SET options = '{"colour": "red"}'""")
    said = start_in_vain(first.state_dir)
    assert "cannot read model m" in said
    assert "colour" in said


def test_damaged_state_is_put_aside(start_supervisor: Callable[..., Any]) -> None:
    """The supervisor starts with a fresh state, says so, and keeps the damaged file."""
    first = start_supervisor()
    first.client.load("m", runtime="echo")
    first.stop()
    database = first.state_dir / "state.db"
    damaged = database.read_bytes()[:5000]
    database.write_bytes(damaged)
    again = start_supervisor()
    assert again.client.models() == []
    again.client.load("m", runtime="echo")
    assert "The state file was damaged" in again.log()
    assert (first.state_dir / "state.db.corrupt-1").read_bytes() == damaged


def test_full_disk_costs_the_restart_not_the_work(supervisor: Any) -> None:
    """The state cannot be written any more: models load and unload as before, and the log says so.

    A limit on the size of the supervisor's files stands in for the full disk. The log is below
    it, the database's write-ahead log above.
    """
    client = supervisor.client
    client.load("before", runtime="echo")  # the forkserver has no such limit
    resource.prlimit(supervisor.pid, resource.RLIMIT_FSIZE, (16384, 16384))
    client.load("after", runtime="echo")
    assert "this will not survive a restart: cannot save model after" in supervisor.log()
    assert client.predict_json("after", BODY) == ANSWER
    assert client.unload("before").verified
    assert client.unload("after").verified


def test_no_more_files(start_supervisor: Callable[..., Any]) -> None:
    """The limit on open files ends a load with a clear error, and nothing else.

    All that is loaded works on, and after an unload there is room again.
    """
    client = start_supervisor(files=80).client
    loaded: list[str] = []

    def load_another() -> None:
        client.load(f"m{len(loaded)}", runtime="echo")
        loaded.append(f"m{len(loaded)}")

    with pytest.raises(ModelsupError, match=r"(?i)too many open files") as refused:
        repeat(load_another, 40)
    assert refused.value.status == 503
    assert len(loaded) > 5
    assert all(client.predict_json(name, BODY) == ANSWER for name in loaded[-2:])
    for name in loaded[:5]:
        assert client.unload(name).verified
    client.load("m0")
    assert client.predict_json("m0", BODY) == ANSWER


def repeat(function: Callable[[], None], times: int) -> None:
    """Call a function again and again."""
    for _ in range(times):
        function()
