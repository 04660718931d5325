"""A worker that has served or grown enough is replaced, and no request is lost over it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

MB = 1000**2
BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}
ASKERS = 4
GENERATIONS = 3


@pytest.mark.parametrize("room", ["beside", "after"])
@pytest.mark.parametrize(
    ("commands", "limits"),
    [([f"leak:{MB}"], {"recycle_above": 50 * MB}), ([], {"max_requests": 50})],
    ids=["memory", "requests"],
)
def test_worker_is_replaced_under_constant_requests(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    background: Callable[..., Any],
    room: str,
    commands: list[str],
    limits: dict[str, int],
) -> None:
    """Where a second one does not fit beside it, the new one starts after its end."""
    supervisor, client = shared_supervisor, shared_supervisor.client
    share = 0.01 if room == "beside" else 0.6
    ram = int(client.memory().host.budget_bytes * share) + 200 * MB
    client.load("m", echo_model(on_call=["sleep:0.002", *commands]), ram=ram, **limits)
    enough, seen = threading.Event(), set(client.model("m").workers)

    def keep_asking() -> list[Any]:
        answers = []
        while not enough.is_set():
            answers.append(client.predict_json("m", BODY))
        return answers

    def many_have_served() -> bool:
        seen.update(client.model("m").workers)
        return len(seen) > GENERATIONS

    askers = [background(keep_asking) for _ in range(ASKERS)]
    try:
        supervisor.until(many_have_served, 60)
    finally:
        enough.set()
    for asker in askers:
        answers = asker.result()
        assert answers == [ANSWER] * len(answers) != []
    told = [line for line in supervisor.log().splitlines() if "recycling a worker" in line]
    assert f"next='{room} it'" in told[-1]
    assert [w.restarts for w in client.workers() if w.state == "ready"] in ([], [0])


@pytest.mark.parametrize("private", [False, True], ids=["shared", "private"])
def test_client_keeps_its_model_while_its_worker_is_replaced(
    shared_supervisor: Any, echo_model: Callable[..., str], private: bool
) -> None:
    """Neither its lease, its pin nor a request of it is lost; the old worker is not left over."""
    supervisor, client = shared_supervisor, shared_supervisor.client
    options = {"private": private, "pin": True, "recycle_above": 30 * MB}
    first = client.swap("anna", "m", echo_model(on_call=[f"leak:{MB}"]), **options).worker
    anna = client.session("anna")

    def another_serves() -> bool:
        assert anna.predict_json(BODY) == ANSWER
        return client.client("anna").worker != first

    supervisor.until(another_serves)
    supervisor.until(lambda: len(client.workers()) == 1)
    (worker,) = client.workers()
    assert (worker.clients, worker.private_to) == (("anna",), "anna" if private else None)
    assert (worker.pinned, worker.restarts) == (True, 0)
    assert client.release("anna").kept == "model m is pinned"


def test_request_that_runs_when_its_worker_is_found_worn_out_is_answered_there(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Any],
    background: Callable[..., Any],
) -> None:
    """What runs is not cut off, however long it takes; others are answered by the new worker."""
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    old = client.load("m", echo_model(), recycle_above=50 * MB).worker
    pid = supervisor.command("m", f"leak:{100 * MB}")["pid"]
    long = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        supervisor.until(lambda: client.model("m").workers not in {(old,), ()})
        assert client.predict_json("m", BODY) == ANSWER
        assert {w.id: (w.state, w.in_flight) for w in client.workers()}[old] == ("draining", 1)
    assert long.result()["pid"] == pid
    supervisor.until(lambda: old not in [w.id for w in client.workers()])


def test_unload_ends_a_worker_that_still_serves_its_last_request(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Any],
    background: Callable[..., Any],
) -> None:
    """The receipt is that of its successor, and comes once both have ended."""
    supervisor, client, gate = shared_supervisor, shared_supervisor.client, fifo("gate")
    old = client.load("m", echo_model(), max_requests=1).worker
    assert client.predict_json("m", BODY) == ANSWER
    last = background(supervisor.command, "m", f"gate:{gate}")
    with gate.open("wb"):
        supervisor.until(lambda: client.model("m").workers not in {(old,), ()})
        (new,) = client.model("m").workers
        unload = background(client.unload, "m")
        supervisor.until(lambda: client.model("m").state == "unloaded")
        assert [w.id for w in client.workers()] == [old]
    assert unload.result().worker == new
    assert last.result()["pid"]
    assert client.workers() == []


def test_ceiling_that_a_new_worker_is_over_replaces_none(shared_supervisor: Any) -> None:
    """Else it would be replaced for ever."""
    client = shared_supervisor.client
    worker = client.load("m", runtime="echo", recycle_above=1).worker
    client.load("other", runtime="echo", max_requests=1)
    assert client.predict_json("m", BODY) == ANSWER
    assert client.predict_json("other", BODY) == ANSWER
    (other,) = client.model("other").workers
    shared_supervisor.until(lambda: client.model("other").workers not in {(other,), ()})
    assert client.model("m").workers == (worker,)
