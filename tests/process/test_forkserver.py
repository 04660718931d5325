"""The process that forks workers: it may die, and its workers must live on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.client import LoadFailed, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def kill_forkserver(supervisor: Any) -> int:
    """SIGKILL the echo forkserver and wait until the supervisor knows; return its pid."""
    (forkserver,) = supervisor.client.status().forkservers
    psutil.Process(forkserver.pid).kill()
    supervisor.until(lambda: forkserver not in supervisor.client.status().forkservers)
    return int(forkserver.pid)


def test_workers_outlive_their_forkserver(shared_supervisor: Any) -> None:
    """They serve on, and the next load starts another forkserver."""
    client = shared_supervisor.client
    old = client.load("old", runtime="echo")
    dead = kill_forkserver(shared_supervisor)
    assert client.predict_json("old", BODY) == ANSWER
    client.load("new", runtime="echo")
    (forkserver,) = client.status().forkservers
    assert forkserver.pid != dead
    assert client.model("old").workers == (old.worker,)
    assert client.predict_json("old", BODY) == ANSWER


def test_death_of_an_orphaned_worker_is_seen(shared_supervisor: Any) -> None:
    """With its parent gone it is the supervisor that collects it, cause and all."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo").worker
    kill_forkserver(shared_supervisor)
    with pytest.raises(Unavailable):
        shared_supervisor.command("m", "crash")
    shared_supervisor.until(lambda: client.model("m").workers not in {(), (worker,)})
    assert client.predict_json("m", BODY) == ANSWER
    assert "cause=signal:11" in shared_supervisor.log()


def test_orphaned_worker_is_unloaded_in_order(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """The receipt is as good as with a forkserver, and no zombie stays."""
    client = shared_supervisor.client
    client.load("m", echo_model(on_load=["grandchild:session"]))
    worker = psutil.Process(client.workers()[0].pid)
    (grandchild,) = worker.children()
    kill_forkserver(shared_supervisor)
    receipt = client.unload("m")
    assert (receipt.outcome, receipt.verified) == ("drained", True)
    assert receipt.freed.host_bytes > 0
    assert not psutil.pid_exists(worker.pid)
    assert not psutil.pid_exists(grandchild.pid)
    assert psutil.Process(shared_supervisor.pid).children() == []


def test_forkserver_that_dies_under_a_load_is_replaced(
    start_supervisor: Callable[..., Any], background: Callable[..., Any]
) -> None:
    """It dies while it starts; the load does not notice."""
    supervisor = start_supervisor()
    client = supervisor.client
    load = background(client.load, "m", runtime="echo")
    supervisor.until(lambda: client.status().forkservers)
    psutil.Process(client.status().forkservers[0].pid).kill()
    assert load.result().state == "ready"
    assert client.predict_json("m", BODY) == ANSWER


def test_idle_forkserver_ends(start_supervisor: Callable[..., Any]) -> None:
    """It gives its memory back, if the setting says so, and not while it has a worker."""
    supervisor = start_supervisor("--forkserver-ttl", "0.1", "--preload", "echo")
    client = supervisor.client
    (preloaded,) = client.status().forkservers
    assert preloaded.state == "ready"
    client.load("a", runtime="echo")
    client.load("b", runtime="echo")
    client.unload("a")
    supervisor.until(lambda: "worker gone" in supervisor.log())
    assert client.status().forkservers == (preloaded,)
    client.unload("b")
    supervisor.until(lambda: client.status().forkservers == ())
    client.load("a")
    assert client.predict_json("a", BODY) == ANSWER


def test_idle_forkserver_that_tells_late_of_its_last_worker_ends(
    start_supervisor: Callable[..., Any],
) -> None:
    """The supervisor looked once, while it still counted the worker, and never again."""
    supervisor = start_supervisor("--forkserver-ttl", "1ms")
    client = supervisor.client
    client.load("a", runtime="echo")
    (forkserver,) = client.status().forkservers
    process = psutil.Process(forkserver.pid)
    process.suspend()
    assert client.unload("a").verified
    assert client.status().forkservers == (forkserver,)
    process.resume()
    supervisor.until(lambda: client.status().forkservers == ())


def test_forkserver_leaves_no_descriptors_behind(shared_supervisor: Any) -> None:
    """Loads, unloads, crashes and dead forkservers leave the supervisor's descriptors as before."""
    client = shared_supervisor.client

    def rounds(count: int) -> int:
        for _ in range(count):
            client.load("m", runtime="echo")
            client.predict_json("m", BODY)
            kill_forkserver(shared_supervisor)
            client.unload("m")
        return int(shared_supervisor.open_files())

    before = rounds(1)
    assert rounds(3) <= before


def test_unknown_runtime_says_which_there_are(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    with pytest.raises(
        LoadFailed, match="no runtime 'nope'; installed are echo, tensorflow"
    ) as bad:
        client.load("m", runtime="nope")
    assert (bad.value.cause, bad.value.status) == ("load_error", 422)
    shared_supervisor.until(
        lambda: all(server.runtime != "nope" for server in client.status().forkservers)
    )
