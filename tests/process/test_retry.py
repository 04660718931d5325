"""A worker that dies costs no request its answer, unless the request is what it died of."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests
from modelsup.client import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0, 2.0]]}
ANSWER = {"predictions": BODY["instances"]}
LARGE = 2 * 1024 * 1024  # bytes; more than is kept of a body


def do(*commands: str) -> dict[str, Any]:
    return {"signature_name": "command", "inputs": {"command": commands}}


def test_a_request_whose_worker_is_killed_is_answered_by_the_next(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    first = client.load("m", runtime="echo").worker
    asked = [background(client.predict_json, "m", do(f"gate:{gate}")), None]
    with gate.open("wb"):
        asked[1] = background(client.predict_json, "m", BODY)
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 2)
        psutil.Process(client.workers()[0].pid).send_signal(signal.SIGKILL)
        shared_supervisor.until(lambda: first not in client.model("m").workers)
    with gate.open("wb"):
        pass
    pid = json.loads(asked[0].result()["outputs"][0])["pid"]
    (worker,) = client.workers()
    assert (worker.pid, worker.restarts) == (pid, 1)
    assert asked[1].result() == ANSWER


def test_a_request_that_kills_workers_kills_two(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    with pytest.raises(Unavailable, match=r"at the second try, .*crashed \(SIGSEGV\)") as told:
        client.predict_json("m", do("crash"))
    assert (told.value.status, told.value.code) == (503, "worker_died")
    shared_supervisor.until(lambda: client.model("m").state == "ready")
    assert client.workers()[0].restarts == 2
    assert client.predict_json("m", BODY) == ANSWER


def test_it_can_be_turned_off_and_on(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", retry=False)
    for restarts in (1, 3):
        with pytest.raises(Unavailable) as told:
            client.predict_json("m", do("kill"))
        assert ("second" in str(told.value)) is (restarts == 3)
        shared_supervisor.until(lambda: client.model("m").state == "ready")
        assert client.workers()[0].restarts == restarts
        client.add_model("m", retry=True)


def test_a_body_that_is_not_kept_is_not_sent_again(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    body = json.dumps(do("kill") | {"padding": "x" * LARGE})
    url = f"{shared_supervisor.url}/v1/models/m:predict"
    answer = requests.post(url, body, headers={"Content-Type": "application/json"}, timeout=60)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["X-Modelsup-Error"] == "worker_died"
    shared_supervisor.until(lambda: client.model("m").state == "ready")
    assert client.workers()[0].restarts == 1


def test_a_forced_unload_brings_no_worker_back(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo")
    running = background(client.predict_json, "m", do(f"gate:{gate}"))
    with gate.open("wb"):
        assert client.unload("m", force=True).in_flight_aborted == 1
    assert isinstance(running.exception(), Unavailable)
    assert client.workers() == []


@pytest.mark.parametrize("command", ["kill", "exit:0"])
def test_those_who_wait_are_served_whatever_a_request_before_them_does(
    shared_supervisor: Any,
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
    command: str,
) -> None:
    """It kills two workers; they were to get these next, and have not died of them."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo", max_concurrency=1)
    first = background(client.predict_json, "m", do(f"gate:{gate}"))
    with gate.open("wb"):
        killer = background(client.predict_json, "m", do(command))
        shared_supervisor.until(lambda: client.model("m").waiting == 1)
        waiting = [background(client.predict_json, "m", BODY) for _ in range(5)]
        shared_supervisor.until(lambda: client.model("m").waiting == 6)
    first.result()
    assert isinstance(killer.exception(), Unavailable)
    assert [answer.result() for answer in waiting] == [ANSWER] * 5
