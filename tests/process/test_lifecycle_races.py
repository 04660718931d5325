"""Wishes that meet: requests, loads, unloads and swaps of the same model at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psutil
import pytest
import requests
from modelsup.client import Conflict, Held, LoadFailed, Unavailable, UnknownClient

from tests.process.conftest import post_and_keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def test_request_during_an_unload_waits_and_loads_again(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    """A request arrives while its model drains: it waits for the end, loads anew, is answered.

    Nothing else in the system may wait for it: another model goes on answering.
    """
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    old = client.load("m", runtime="echo").worker
    client.load("other", runtime="echo")
    running = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        unload = background(client.unload, "m")
        supervisor.until(lambda: client.model("m").state == "draining")
        late = background(client.predict_json, "m", BODY)
        assert client.predict_json("other", BODY) == ANSWER
        assert client.model("m").state == "draining"
        assert not late.done()
    assert running.result()["pid"]
    receipt = unload.result()
    assert (receipt.worker, receipt.outcome, receipt.in_flight_completed) == (old, "drained", 1)
    assert late.result() == ANSWER
    assert client.model("m").workers != (old,)


def test_request_as_the_model_goes_idle_is_answered(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    """A request that arrives the moment idleness ends its model waits for a new worker."""
    supervisor = start_supervisor("--idle-ttl", "0.02")
    client = supervisor.client
    client.add_model("m", echo_model())
    for _ in range(10):
        assert client.predict_json("m", BODY) == ANSWER
        supervisor.until(lambda: client.model("m").state != "ready")
    supervisor.until(lambda: client.workers() == [])
    assert client.model("m").state == "unloaded"


def test_two_requests_for_an_unloaded_model_make_one_worker(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """Requests that arrive together must join one load, not start a process each."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]))
    answers = [background(client.predict_json, "m", BODY) for _ in range(8)]
    with gate.open("wb"):
        assert len(client.workers()) == 1
    assert [answer.result() for answer in answers] == [ANSWER] * 8
    assert [(w.requests, w.restarts) for w in client.workers()] == [(8, 0)]


def test_load_ends_when_its_only_requester_disconnects(
    shared_supervisor: Any, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    """Nobody else wants the model: its load is cancelled and leaves nothing."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]))
    requester = post_and_keep(shared_supervisor.port, "/v1/models/m:predict", BODY)
    with gate.open("wb"):
        (worker,) = client.workers()
        requester.close()
        shared_supervisor.until(lambda: not psutil.pid_exists(worker.pid))
    shared_supervisor.until(lambda: client.workers() == [])
    assert client.model("m").state == "unloaded"


def test_load_goes_on_when_one_of_two_requesters_disconnects(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """The other one still wants the model."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]))
    leaving = post_and_keep(shared_supervisor.port, "/v1/models/m:predict", BODY)
    staying = background(client.predict_json, "m", BODY)
    with gate.open("wb"):
        leaving.close()
    assert staying.result() == ANSWER


def test_explicit_load_goes_on_when_its_caller_disconnects(
    shared_supervisor: Any, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    """The caller of `load` said that it wants the model loaded, not that it wants an answer."""
    client, gate = shared_supervisor.client, fifo("gate")
    body = {"source": echo_model(on_load=[f"gate:{gate}"])}
    caller = post_and_keep(shared_supervisor.port, "/api/models/m/load", body)
    with gate.open("wb"):
        caller.close()
        requester = post_and_keep(shared_supervisor.port, "/v1/models/m:predict", BODY)
        requester.close()
    shared_supervisor.until(lambda: client.model("m").state == "ready")


def test_load_by_v2_goes_on_when_its_caller_disconnects(
    shared_supervisor: Any, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]))
    caller = post_and_keep(shared_supervisor.port, "/v2/repository/models/m/load", {})
    with gate.open("wb"):
        caller.close()
        post_and_keep(shared_supervisor.port, "/v1/models/m:predict", BODY).close()
    shared_supervisor.until(lambda: client.model("m").state == "ready")


def test_unload_while_loading_ends_the_load(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """Who waits for the load is told that it was unloaded, at once."""
    client, gate = shared_supervisor.client, fifo("gate")
    load = background(client.load, "m", echo_model(on_load=[f"gate:{gate}"]))
    with gate.open("wb"):
        receipt = client.unload("m")
        with pytest.raises(Unavailable, match="m was unloaded while it was loading"):
            load.result()
    assert (receipt.outcome, receipt.verified) == ("drained", True)
    assert client.workers() == []


def test_unload_of_a_model_that_another_client_holds(shared_supervisor: Any) -> None:
    """Client A must not take away what client B works with; an admin may, by force."""
    client = shared_supervisor.client
    client.swap("anna", "m", runtime="echo")
    client.swap("otto", "m")
    with pytest.raises(Held, match="held by clients anna, otto") as refused:
        client.unload("m")
    assert (refused.value.status, refused.value.clients) == (409, ("anna", "otto"))
    assert client.predict_json("m", BODY) == ANSWER
    kept = client.release("anna")
    assert (kept.receipt, kept.kept) == (None, "model m is held by client otto")

    receipt = client.unload("m", force=True)

    assert (receipt.outcome, receipt.verified) == ("forced", True)
    assert client.clients() == []


def test_unload_of_a_held_model_by_any_way(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """None of them takes it away from its client, which goes on working on the same worker."""
    client = shared_supervisor.client
    client.swap("anna", "m", echo_model())
    (worker,) = client.model("m").workers
    anna = client.session("anna")

    by_v2 = requests.post(f"{shared_supervisor.url}/v2/repository/models/m/unload", timeout=30)
    assert (by_v2.status_code, by_v2.headers["X-Modelsup-Error"]) == (409, "held")
    assert "held by client anna" in by_v2.json()["error"]
    with pytest.raises(Conflict, match="m is loaded"):
        client.remove_model("m")
    with pytest.raises(Conflict, match="m is loaded from"):
        client.load("m", echo_model("other"))
    client.swap("otto", "m")
    assert client.release("otto").kept == "model m is held by client anna"

    assert anna.predict_json(BODY) == ANSWER
    assert client.model("m").workers == (worker,)
    client.unload("m", force=True)
    with pytest.raises(UnknownClient, match=r"its lease may have ended\. Swap to a model first"):
        anna.predict_json(BODY)
    anna.swap("m")
    assert anna.predict_json(BODY) == ANSWER


def test_later_of_two_racing_swaps_wins(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """The earlier swap is told at once that it came too late, and its worker is not left over."""
    client, gate = shared_supervisor.client, fifo("gate")
    slow = echo_model(on_load=[f"gate:{gate}"])
    earlier = background(client.swap, "john", "slow", slow)
    with gate.open("wb"):
        client.swap("john", "quick", runtime="echo")
        with pytest.raises(Conflict, match="later swap or release of client john") as caught:
            earlier.result()
    assert (caught.value.status, caught.value.code) == (409, "superseded")
    assert client.client("john").model == "quick"
    assert [worker.model for worker in client.workers()] == ["quick"]


def test_release_overtakes_a_swap(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    """A client that has let go of its model must not hold another one a moment later."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.swap("john", "quick", runtime="echo")
    swap = background(client.swap, "john", "slow", echo_model(on_load=[f"gate:{gate}"]))
    with gate.open("wb"):
        receipt = client.release("john").receipt
        assert receipt.model == "quick"
        with pytest.raises(Conflict, match="later swap or release of client john"):
            swap.result()
    assert (client.clients(), client.workers()) == ([], [])


def test_many_racing_swaps_of_one_client_leave_one_worker(
    shared_supervisor: Any, echo_model: Callable[..., str], background: Callable[..., Any]
) -> None:
    """To different models and to the same one: each is told what became of it."""
    client = shared_supervisor.client
    for name in ("a", "b"):
        client.add_model(name, echo_model(name))
    swaps = [background(client.swap, "john", "ab"[number % 2]) for number in range(12)]
    errors = [swap.exception() for swap in swaps]
    assert {type(error) for error in errors if error is not None} <= {Conflict}
    assert None in errors
    held = client.client("john").model
    assert client.session("john").predict_json(BODY) == ANSWER
    assert [worker.model for worker in client.workers()] == [held]


def test_swap_to_a_model_that_fails_keeps_the_old_one(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """A client whose swap fails goes on with the model it has."""
    client = shared_supervisor.client
    client.swap("john", "good", runtime="echo")
    with pytest.raises(LoadFailed, match="told to fail"):
        client.swap("john", "bad", echo_model(on_load=["fail"]))
    assert client.client("john").model == "good"
    assert client.session("john").predict_json(BODY) == ANSWER
    assert [worker.model for worker in client.workers()] == ["good"]


def test_failed_load_leaves_no_trace_for_a_load_from_another_source(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    """A second load once took the source of the first, which had failed."""
    client = shared_supervisor.client
    with pytest.raises(LoadFailed):
        client.load("m", echo_model("bad", on_load=["fail"]))
    client.load("m", echo_model("good"))
    assert client.predict_json("m", BODY) == ANSWER


def test_unload_answers_once_the_memory_is_back(shared_supervisor: Any) -> None:
    """Never before: when the receipt is here, the process is gone and its bytes were counted."""
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    pid = shared_supervisor.command("m", f"leak:{50 * 2**20}")["pid"]
    receipt = client.unload("m")
    assert not psutil.pid_exists(pid)
    assert receipt.verified
    assert 50 * 2**20 < receipt.freed.host_bytes < 200 * 2**20
    assert 0 < receipt.seconds.exit <= receipt.seconds.total
