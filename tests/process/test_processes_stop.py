"""The ladder of a stop: drain, SIGTERM, SIGKILL, and what workers do against it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.client import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0]]}


def test_worker_that_ignores_sigterm_is_killed(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """A worker that does not react must not stay in "stopping" for ever."""
    client = start_supervisor("--term-timeout", "0.3").client
    client.load("m", echo_model(on_load=["ignore-sigterm"]))
    receipt = client.unload("m")
    assert (receipt.outcome, receipt.verified) == ("forced", True)
    assert 0.3 <= receipt.seconds.exit < 3
    assert client.workers() == []


def test_stopped_worker_is_killed(start_supervisor: Callable[..., Any]) -> None:
    """A process in the state T takes no SIGTERM, and answers nothing."""
    supervisor = start_supervisor("--term-timeout", "0.3")
    client = supervisor.client
    client.load("m", runtime="echo")
    psutil.Process(client.workers()[0].pid).send_signal(signal.SIGSTOP)
    receipt = client.unload("m")
    assert (receipt.outcome, receipt.verified) == ("forced", True)


def test_grandchild_that_holds_stdout_does_not_hang_the_stop(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """A grandchild, in the worker's group or out of it, holds its output open: both are ended."""
    supervisor, client = shared_supervisor, shared_supervisor.client
    client.load("m", echo_model(on_load=["grandchild:group", "grandchild:session"]))
    worker = psutil.Process(client.workers()[0].pid)
    grandchildren = worker.children()
    assert len(grandchildren) == 2
    receipt = client.unload("m")
    assert (receipt.outcome, receipt.verified) == ("drained", True)
    assert receipt.seconds.total < 3
    assert [g.pid for g in grandchildren if psutil.pid_exists(g.pid)] == []
    assert "killed a process that a worker left behind" in supervisor.log()


def test_forced_unload_aborts_what_runs(
    shared_supervisor: Any, background: Callable[..., Any], fifo: Callable[[str], Path]
) -> None:
    """Force waits for no request; the one that ran gets a clear error."""
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        receipt = client.unload("m", force=True)
        with pytest.raises(Unavailable) as aborted:
            running.result()
    assert (receipt.outcome, receipt.in_flight_aborted) == ("forced", 1)
    assert aborted.value.status == 503


def test_drain_that_takes_too_long_is_cut_short(
    shared_supervisor: Any, background: Callable[..., Any], fifo: Callable[[str], Path]
) -> None:
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        receipt = client.unload("m", timeout=0.2)
    assert (receipt.outcome, receipt.in_flight_aborted) == ("forced", 1)
    assert 0.2 <= receipt.seconds.drain < 2
    assert isinstance(running.exception(), Unavailable)


def test_worker_that_dies_while_it_drains(
    shared_supervisor: Any, background: Callable[..., Any], fifo: Callable[[str], Path]
) -> None:
    """The unload ends at once, and its receipt says that it was a crash."""
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    worker = client.load("m", runtime="echo").worker
    running = background(supervisor.command, "m", f"gate:{gate}", "crash")
    with gate.open("wb"):
        unload = background(client.unload, "m")
        supervisor.until(lambda: client.model("m").state == "draining")
    receipt = unload.result()
    assert (receipt.worker, receipt.outcome, receipt.in_flight_aborted) == (worker, "crashed", 1)
    assert isinstance(running.exception(), Unavailable)
    assert client.model("m").state == "unloaded"


def test_worker_leaves_no_temporary_files(shared_supervisor: Any) -> None:
    supervisor, client = shared_supervisor, shared_supervisor.client
    client.load("m", runtime="echo")
    facts = supervisor.command("m")
    folder = supervisor.state_dir / "run" / client.workers()[0].id
    assert (facts["folder"], facts["environment"]["TMPDIR"]) == (str(folder), str(folder))
    (folder / "left").mkdir()
    client.unload("m")
    assert list((supervisor.state_dir / "run").iterdir()) == []


def test_second_signal_hurries_the_drain(
    start_supervisor: Callable[..., Any],
    background: Callable[..., Any],
    fifo: Callable[[str], Path],
) -> None:
    """The first SIGTERM lets requests end; who sends another one does not want to wait."""
    supervisor, gate = start_supervisor(), fifo("gate")
    client = supervisor.client
    client.load("m", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        supervisor.process.send_signal(signal.SIGTERM)
        supervisor.until(lambda: client.model("m").state == "draining")
        assert client.status().state == "stopping"
        with pytest.raises(Unavailable, match="shutting down"):
            client.load("other", runtime="echo")
        supervisor.process.send_signal(signal.SIGTERM)
        assert supervisor.process.wait(10) == 0
    assert running.exception() is not None


def test_stop_does_not_wait_for_a_launch(
    start_supervisor: Callable[..., Any], background: Callable[..., Any]
) -> None:
    """The forkserver is about to import its framework, which takes many seconds."""
    supervisor = start_supervisor()
    load = background(supervisor.client.load, "m", runtime="echo")
    supervisor.until(lambda: supervisor.client.status().forkservers)
    assert supervisor.stop() == 0
    assert load.exception() is not None
    assert "worker ready" not in supervisor.log()


def test_stop_lets_running_requests_end(
    start_supervisor: Callable[..., Any],
    background: Callable[..., Any],
    fifo: Callable[[str], Path],
) -> None:
    supervisor, gate = start_supervisor(), fifo("gate")
    client = supervisor.client
    client.load("m", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        client.stop()
        supervisor.until(lambda: client.model("m").state == "draining")
    assert running.result()["pid"]
    assert supervisor.process.wait(10) == 0
