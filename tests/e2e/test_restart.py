"""What a supervisor knows outlives it: after a stop, and after a SIGKILL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pytest
import requests

from tests.conftest import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Supervisor

RESTORE_SECONDS = 20.0


def until_restored(supervisor: Supervisor) -> None:
    """Wait until the probe says that all is loaded again."""
    ready = f"{supervisor.url}/readyz"
    wait_until(lambda: requests.get(ready, timeout=5).ok, RESTORE_SECONDS, supervisor.log)


def facts(supervisor: Supervisor) -> dict[str, Any]:
    """Return what must be the same after a restart."""
    client = supervisor.client
    return {
        "models": {(m.name, m.source, m.runtime, m.state, m.pinned) for m in client.models()},
        "options": {m.name: m.options for m in client.models()},
        "workers": {(w.model, w.version, w.private_to, w.clients) for w in client.workers()},
        "leases": {(c.id, c.model, c.private, c.since) for c in client.clients()},
    }


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_restart_restores_models_workers_and_leases(
    start_supervisor: Callable[..., Supervisor], echo_model: Callable[..., str], end: str
) -> None:
    first = start_supervisor()
    client = first.client
    client.load("pinned", echo_model("pinned"), pin=True, ttl="1h", threads=2)
    client.add_model("known", echo_model("known"))
    client.load("gone", runtime="echo")
    client.unload("gone")
    client.load("removed", runtime="echo")
    client.unload("removed")
    client.remove_model("removed")
    client.swap("anna", "shared", runtime="echo", lease_ttl=300)
    client.swap("otto", "shared", private=True)
    client.swap("left", "pinned")
    client.release("left")
    before, pids = facts(first), {worker.pid for worker in client.workers()}
    assert before["leases"]

    first.stop() if end == "stop" else first.kill()
    first.assert_nothing_left()
    second = start_supervisor(port=first.port)
    until_restored(second)

    assert facts(second) == before
    assert pids.isdisjoint(worker.pid for worker in second.client.workers())
    assert np.asarray(second.client.session("anna").predict([[1.0]])).tolist() == [[1.0]]
    assert 290 < (second.client.client("anna").expires_in_seconds or 0) <= 300
    assert "removed" not in {model.name for model in second.client.models()}


def test_what_was_unloaded_stays_unloaded(start_supervisor: Callable[..., Supervisor]) -> None:
    first = start_supervisor()
    first.client.load("m", runtime="echo")
    first.client.unload("m")
    first.stop()

    second = start_supervisor()
    until_restored(second)

    assert second.client.workers() == []
    assert np.asarray(second.client.predict("m", [[2.0]])).tolist() == [[2.0]]


def test_a_model_whose_file_is_gone_does_not_keep_the_rest_from_coming_back(
    start_supervisor: Callable[..., Supervisor], echo_model: Callable[..., str], tmp_path: Path
) -> None:
    first = start_supervisor()
    first.client.load("lost", echo_model("lost"))
    first.client.load("there", echo_model("there"))
    first.client.swap("anna", "lost")
    first.stop()
    (tmp_path / "lost.echo").unlink()

    second = start_supervisor()
    until_restored(second)

    assert [worker.model for worker in second.client.workers()] == ["there"]
    answer = requests.post(
        f"{second.url}/clients/anna/predict", json={"instances": [[1]]}, timeout=10
    )
    assert answer.status_code == 422
    assert "lost.echo does not exist" in answer.json()["error"]
    echo_model("lost")
    assert np.asarray(second.client.session("anna").predict([[3.0]])).tolist() == [[3.0]]


def test_a_supervisor_killed_in_the_middle_of_a_load_starts_again(
    start_supervisor: Callable[..., Supervisor],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
) -> None:
    gate = fifo("gate")
    first = start_supervisor()
    first.client.load("slow", echo_model("slow", on_load=[f"gate:{gate}"]), wait=0)
    with gate.open("wb"):  # the worker is in its load
        pids = {worker.pid for worker in first.client.workers()}
        first.kill()
    assert None not in pids
    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in pids if pid), 2)

    second = start_supervisor()
    until_restored(second)

    # It was asked for but never became ready: whoever wants it asks again.
    assert second.client.workers() == []
    assert second.client.model("slow").state == "unloaded"


def test_restored_and_new_requests_share_one_load(
    start_supervisor: Callable[..., Supervisor],
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
) -> None:
    """A request that comes while its model is being restored joins that load."""
    first = start_supervisor()
    source = echo_model("m")
    first.client.load("m", source)
    first.stop()
    gate = fifo("gate")
    echo_model("m", on_load=[f"gate:{gate}"])

    second = start_supervisor()
    probe = requests.get(f"{second.url}/readyz", timeout=5)
    assert (probe.status_code, probe.json()["status"]) == (503, "restoring")
    assert "Retry-After" in probe.headers
    loading = second.client.load("m", wait=0)
    with gate.open("wb"):
        pass
    until_restored(second)

    assert loading.state in {"starting", "loading"}
    (worker,) = second.client.workers()
    assert (worker.state, worker.restarts) == ("ready", 0)
