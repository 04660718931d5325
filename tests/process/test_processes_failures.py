"""Workers that fail: while they load, while they serve, once or again and again."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests
from modelsup.client import InvalidRequest, LoadFailed, TimedOut, Unavailable

from tests.process.conftest import post_and_keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def wait_for_other_worker(supervisor: Any, model: str, dead: str) -> None:
    """Wait until the end of a worker is known; a request then waits for its successor."""
    supervisor.until(lambda: supervisor.client.model(model).workers not in {(dead,)})


@pytest.mark.parametrize(
    ("command", "cause", "words"),
    [
        ("kill", "signal:9", "killed from outside .SIGKILL; out of memory"),
        ("crash", "signal:11", "crashed .SIGSEGV. while loading"),
        ("exit:0", "unknown", "exited with code 0, unasked, while loading"),
        ("fail:no such layer", "load_error", "no such layer"),
    ],
)
def test_death_while_loading_is_told_at_once(
    shared_supervisor: Any, echo_model: Callable[..., str], command: str, cause: str, words: str
) -> None:
    """Waiters get the cause and the last lines of the log, not a timeout of ten minutes."""
    client = shared_supervisor.client
    with pytest.raises(LoadFailed, match=words) as caught:
        client.load("m", echo_model(on_load=["print:last words", command]), wait=60)
    assert (caught.value.cause, caught.value.log) == (cause, ("last words",))
    assert caught.value.status == (422 if cause == "load_error" else 503)
    failure = client.model("m").failure
    assert (client.model("m").state, failure.cause) == ("failed", cause)
    assert client.workers() == []


def test_death_while_loading_wakes_every_waiter(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]))
    waiters = [background(client.predict_json, "m", BODY) for _ in range(5)]
    with gate.open("wb"):
        psutil.Process(client.workers()[0].pid).kill()
        errors = [waiter.exception() for waiter in waiters]
    assert [(e.code, e.status) for e in errors] == [("load_failed", 503)] * 5


def test_model_that_is_no_model(shared_supervisor: Any, tmp_path: Path) -> None:
    """A damaged file is a permanent failure, until the file changes."""
    client, path = shared_supervisor.client, tmp_path / "m.echo"
    path.write_text("{")
    for _ in range(2):
        with pytest.raises(LoadFailed, match=r"m\.echo is not an echo model") as caught:
            client.load("m", path)
        assert (caught.value.cause, caught.value.status) == ("bad_model", 422)
    with pytest.raises(LoadFailed):
        client.predict_json("m", BODY)
    path.write_text("{}")
    assert client.predict_json("m", BODY) == ANSWER


def test_load_that_takes_too_long(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    client = start_supervisor("--load-timeout", "1").client
    client.load("warm", runtime="echo")  # its forkserver is up
    with pytest.raises(LoadFailed, match="not ready within 1 s") as caught:
        client.load("m", echo_model(on_load=["hang"]))
    assert caught.value.cause == "timeout"
    assert client.model("m").workers == ()


@pytest.mark.parametrize("command", ["crash", "kill", "exit:0", "exit:7"])
def test_death_while_serving_is_an_error_for_one_request(
    shared_supervisor: Any, command: str
) -> None:
    """The request that ran gets a clear 503; the next one is answered by a new worker."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo", retry=False).worker
    with pytest.raises(Unavailable, match="the worker ended before it answered") as caught:
        shared_supervisor.command("m", command)
    assert (caught.value.status, caught.value.retry_after) == (503, 1.0)
    wait_for_other_worker(shared_supervisor, "m", worker)
    assert client.predict_json("m", BODY) == ANSWER
    assert client.workers()[0].restarts == 1


def test_worker_that_closes_its_listening_socket_is_replaced(
    shared_supervisor: Any, background: Callable[..., Any], fifo: Callable[[str], Path]
) -> None:
    """It still answers on the connections that it has, so nothing but a refusal shows it."""
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    worker = client.load("m", runtime="echo", retry=False).worker
    running = background(supervisor.command, "m", "close-listener", f"gate:{gate}")
    with gate.open("wb"):
        with pytest.raises(Unavailable, match="takes no connection") as caught:
            client.predict_json("m", BODY)
        assert caught.value.status == 503
        wait_for_other_worker(supervisor, "m", worker)
    assert isinstance(running.exception(), Unavailable)
    assert client.predict_json("m", BODY) == ANSWER
    assert "it takes no connections any more" in supervisor.log()


def test_half_an_answer_is_not_taken_for_a_whole_one(
    shared_supervisor: Any, background: Callable[..., Any]
) -> None:
    """A worker dies while its large answer is read slowly: the client sees the cut."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo").worker
    rows = [[1.0] * 1000] * 2500
    data = json.dumps({"instances": rows}).encode()
    with socket.create_connection(("127.0.0.1", shared_supervisor.port)) as slow:
        head = f"POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n"
        slow.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + data)
        answer = slow.recv(1000)
        background(shared_supervisor.command, "m", "kill").exception()
        while piece := slow.recv(1 << 16):
            answer += piece
    promised = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
    assert answer.startswith(b"HTTP/1.1 200")
    assert len(answer.partition(b"\r\n\r\n")[2]) < promised
    wait_for_other_worker(shared_supervisor, "m", worker)
    assert client.predict_json("m", BODY) == ANSWER


def test_worker_that_hangs_is_replaced(start_supervisor: Callable[..., Any]) -> None:
    """A request that is never answered ends with 504, and its worker does too."""
    supervisor = start_supervisor("--request-timeout", "1")
    client = supervisor.client
    worker = client.load("m", runtime="echo").worker
    with pytest.raises(TimedOut, match="gave no answer for 1 s") as caught:
        supervisor.command("m", "hang")
    assert (caught.value.status, caught.value.code) == (504, "hung")
    wait_for_other_worker(supervisor, "m", worker)
    assert client.predict_json("m", BODY) == ANSWER
    assert "cause=hung" in supervisor.log()


def test_crash_loop_ends(shared_supervisor: Any) -> None:
    """Restarts come later and later; after the fifth crash the model stays failed, until asked."""
    client = shared_supervisor.client
    client.load("m", runtime="echo", retry=False)
    for restarts in range(5):
        shared_supervisor.until(lambda: client.model("m").state == "ready")
        assert client.workers()[0].restarts == restarts
        with pytest.raises(Unavailable):
            shared_supervisor.command("m", "crash")
        shared_supervisor.until(lambda: client.model("m").state != "ready")
    assert client.model("m").state == "failed"
    with pytest.raises(LoadFailed, match=r"m has failed: .*SIGSEGV.*tried again when"):
        client.predict_json("m", BODY)

    client.load("m")

    assert client.predict_json("m", BODY) == ANSWER


def test_unload_while_it_waits_for_its_restart(shared_supervisor: Any) -> None:
    """No worker comes back after an unload that met none."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo", retry=False).worker
    for _ in range(2):  # the second wait is longer
        with pytest.raises(Unavailable):
            shared_supervisor.command("m", "crash")
        wait_for_other_worker(shared_supervisor, "m", worker)
        if client.model("m").state == "restarting":
            break
    receipt = client.unload("m")
    assert receipt.outcome in {"crashed", "drained"}
    assert (client.workers(), client.model("m").state) == ([], "unloaded")


def test_client_that_leaves_does_not_keep_the_worker_busy(
    shared_supervisor: Any, fifo: Callable[[str], Path]
) -> None:
    """The request of a client that went is taken out of the books when it went."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo")
    command = {"signature_name": "command", "inputs": {"command": [f"gate:{gate}"]}}
    url = f"{shared_supervisor.url}/v1/models/m:predict"
    with pytest.raises(requests.ReadTimeout):
        requests.post(url, json=command, timeout=0.1)
    with gate.open("wb"):
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 0)
    assert client.predict_json("m", BODY) == ANSWER


def test_requests_of_clients_that_left_do_not_reach_the_model(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """As in llama-swap, where each request that was given up was still worked off."""
    client, gate, port = shared_supervisor.client, fifo("gate"), shared_supervisor.port
    client.load("m", echo_model(on_call=["print:called"]))
    calls = sum(line.endswith("called") for line in client.logs("m"))  # those of the warm-up
    running = background(shared_supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        waiting = [post_and_keep(port, "/v1/models/m:predict", BODY) for _ in range(5)]
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 6)
        for requester in waiting:
            requester.close()
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 1)
        with pytest.raises(InvalidRequest):  # the worker has looked at its connections since
            client.predict_json("m", {"inputs": {"nothing": 1}})
    assert running.result()["pid"]
    assert client.predict_json("m", BODY) == ANSWER
    assert sum(line.endswith("called") for line in client.logs("m")) == calls + 1


def test_client_that_leaves_in_the_middle_of_its_large_body(shared_supervisor: Any) -> None:
    """The worker has taken the request already: it forgets it, and takes none of it for another."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo").worker
    data = json.dumps({"instances": [[1.5] * 1000] * 500}).encode()
    head = "POST /v1/models/m:predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", shared_supervisor.port)) as sender:
            length = f"Content-Length: {len(data)}\r\n\r\n"
            sender.sendall((head + length).encode() + data[: len(data) // 2])
            shared_supervisor.until(lambda: client.workers()[0].in_flight == 1)
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 0)
        assert client.predict_json("m", BODY) == ANSWER
    assert [(w.id, w.restarts) for w in client.workers()] == [(worker, 0)]


def test_client_that_leaves_in_the_middle_of_its_answer(shared_supervisor: Any) -> None:
    """The worker is free at once, and what was left of the answer gets into no other."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo").worker
    body = {"instances": [[1.5] * 1000] * 2500}
    for _ in range(3):
        with post_and_keep(shared_supervisor.port, "/v1/models/m:predict", body) as reader:
            assert reader.recv(1000).startswith(b"HTTP/1.1 200")
            assert client.workers()[0].in_flight == 1
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 0)
        assert client.predict_json("m", BODY) == ANSWER
    assert [(w.id, w.restarts) for w in client.workers()] == [(worker, 0)]
