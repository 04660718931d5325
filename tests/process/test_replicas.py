"""Several workers of one model: they share its requests, and come and go as it is told."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import DoesNotFit, LoadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BODY = {"instances": [[1.0, 2.0]]}
ANSWER = {"predictions": BODY["instances"]}


def states(client: Any) -> list[str]:
    """Return the states of the workers of m, sorted."""
    return sorted(worker.state for worker in client.workers() if worker.model == "m")


def ids(client: Any) -> set[str]:
    """Return the ids of all workers."""
    return {worker.id for worker in client.workers()}


def part_of_the_budget(client: Any, share: float) -> int:
    """Return so much of the host memory that models may have, in bytes."""
    budget = client.memory().host.budget_bytes
    return int(budget * share)


@contextlib.contextmanager
def asking(client: Any, background: Callable[..., Any], threads: int = 4) -> Iterator[None]:
    """Ask m all the time meanwhile; each request must be answered, and there must be some."""
    over = threading.Event()

    def ask() -> int:
        answers = 0
        while not over.is_set():
            assert client.predict_json("m", BODY) == ANSWER
            answers += 1
        return answers

    asked = [background(ask) for _ in range(threads)]
    try:
        yield
    finally:
        over.set()
    assert all(answers.result() for answers in asked)


def hold(
    supervisor: Any,
    background: Callable[..., Any],
    fifo: Callable[[str], Path],
    gates: contextlib.ExitStack,
    count: int,
) -> list[Any]:
    """Let so many workers of m be at a request until `gates` is closed; return its answers."""
    held = []
    for number in range(count):
        gate = fifo(f"gate{number}")
        held.append(background(supervisor.command, "m", f"gate:{gate}"))
        gates.enter_context(gate.open("w"))
    return held


def test_requests_are_shared(shared_supervisor: Any) -> None:
    """One after another they go round; the statistics of the model are those of all workers."""
    client = shared_supervisor.client
    loaded = client.load("m", runtime="echo", replicas=3)
    assert not loaded.already_loaded
    assert len(set(loaded.workers)) == 3
    for _ in range(6):
        assert client.predict_json("m", BODY) == ANSWER
    assert [(w.replica, w.requests) for w in client.workers()] == [(1, 2), (2, 2), (3, 2)]
    shown = client.model("m")
    assert (shown.state, shown.replicas, shown.ready) == ("ready", 3, 3)
    url = f"{shared_supervisor.url}/v2/models/m/stats"
    (told,) = requests.get(url, timeout=10).json()["model_stats"]
    assert told["inference_count"] == 6
    assert told["batch_stats"][0]["compute_infer"]["count"] == 6
    assert client.load("m").already_loaded


def test_the_busy_are_spared(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", replicas=3)
    with contextlib.ExitStack() as gates:
        held = hold(shared_supervisor, background, fifo, gates, 2)
        assert len({shared_supervisor.command("m")["pid"] for _ in range(5)}) == 1
    assert len({answer.result()["pid"] for answer in held}) == 2


def test_up_and_down_under_load(shared_supervisor: Any, background: Callable[..., Any]) -> None:
    """Not one request is lost."""
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    with asking(client, background):
        up = client.scale("m", 3)
        assert (len(up.workers), up.receipt) == (3, None)
        down = client.scale("m", 1)
        assert len(down.workers) == 1
        assert down.receipt is not None
        assert down.receipt.verified
        assert len(down.receipt.workers) == 2
        assert down.receipt.freed.host_bytes > 0
    assert states(client) == ["ready"]


def test_those_too_many_answer_what_they_have(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", replicas=3)
    with contextlib.ExitStack() as gates:
        held = hold(shared_supervisor, background, fifo, gates, 3)
        scaling = background(client.scale, "m", 1)
        shared_supervisor.until(lambda: states(client) == ["draining", "draining", "ready"])
        assert not scaling.done()
    receipt = scaling.result().receipt
    assert (receipt.in_flight_completed, receipt.in_flight_aborted) == (2, 0)
    assert len({answer.result()["pid"] for answer in held}) == 3
    assert states(client) == ["ready"]


def test_more_workers_take_what_waits(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    """As many requests at each worker as the model says; one queue for all."""
    client = shared_supervisor.client
    client.load("m", runtime="echo", max_concurrency=1)
    with contextlib.ExitStack() as gates:
        held = hold(shared_supervisor, background, fifo, gates, 1)
        waiting = background(client.predict_json, "m", BODY)
        shared_supervisor.until(lambda: client.model("m").waiting == 1)
        client.scale("m", 2)
        assert waiting.result() == ANSWER
    assert held[0].result()


def test_one_of_three_is_killed(shared_supervisor: Any, background: Callable[..., Any]) -> None:
    """The others serve, and another one takes its place."""
    client = shared_supervisor.client
    first = client.load("m", runtime="echo", replicas=3).workers
    victim = client.workers()[1]
    with asking(client, background):
        os.kill(victim.pid, signal.SIGKILL)
        shared_supervisor.until(lambda: victim.id not in {w.id for w in client.workers()})
        assert client.model("m").state == "ready"
        shared_supervisor.until(lambda: client.model("m").ready == 3)
    assert {(w.replica, w.restarts) for w in client.workers()} == {(1, 0), (2, 1), (3, 0)}
    assert len({w.id for w in client.workers()} & set(first)) == 2


def test_scaling_and_killing_under_load(
    shared_supervisor: Any, background: Callable[..., Any]
) -> None:
    """A request whose worker is killed goes to another one at once; none is lost."""
    client, rng = shared_supervisor.client, random.Random(7)
    client.load("m", runtime="echo", replicas=3)
    with asking(client, background, threads=8):
        for _ in range(6):
            count = rng.randint(2, 4)
            assert len(client.scale("m", count).workers) == count
            victim = rng.choice(client.workers())
            os.kill(victim.pid, signal.SIGKILL)
            shared_supervisor.until(lambda gone=victim.id: gone not in ids(client))
            shared_supervisor.until(lambda wanted=count: client.model("m").ready == wanted)
    assert "Traceback" not in shared_supervisor.log()


def test_an_unload_ends_all(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    workers = client.load("m", runtime="echo", replicas=3).workers
    receipt = client.unload("m")
    assert receipt.verified
    assert {one.worker for one in receipt.workers} == set(workers)
    assert receipt.freed.host_bytes == sum(one.freed.host_bytes for one in receipt.workers) > 0
    assert client.workers() == []
    assert client.model("m").state == "unloaded"


def test_a_request_loads_all(shared_supervisor: Any) -> None:
    """It is answered by the first; the others come after it."""
    client = shared_supervisor.client
    client.add_model("m", runtime="echo", replicas=2)
    scaled = client.scale("m", 3)
    assert (scaled.workers, scaled.receipt) == ((), None)
    assert client.workers() == []
    assert client.predict_json("m", BODY) == ANSWER
    shared_supervisor.until(lambda: client.model("m").ready == 3)


def test_a_model_that_cannot_be_loaded_fails_once(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client = shared_supervisor.client
    with pytest.raises(LoadFailed):
        client.load("m", echo_model(on_load=["exit:3"]), replicas=3)
    reasons = [e.facts.get("reason", "") for e in client.events() if e.message == "worker failed"]
    assert sum("code 3" in reason for reason in reasons) == 1
    assert client.model("m").state == "failed"


def test_the_idle_go_together(shared_supervisor: Any) -> None:
    """Those that had no request of late stay as long as another one has."""
    client = shared_supervisor.client
    client.load("m", runtime="echo", replicas=3)
    assert client.predict_json("m", BODY, keep_alive=0) == ANSWER
    shared_supervisor.until(lambda: client.workers() == [])
    idle = [e for e in client.events() if e.kind == "idle" and e.facts["model"] == "m"]
    assert len(idle) == 1
    assert client.predict_json("m", BODY) == ANSWER
    shared_supervisor.until(lambda: client.model("m").ready == 3)


def test_a_lease_is_on_all_and_a_private_worker_is_one(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.add_model("m", runtime="echo", replicas=2)
    with client.session("john") as john:
        john.swap("m")
        shared_supervisor.until(lambda: client.model("m").ready == 2)
        assert {w.clients for w in client.workers()} == {("john",)}
        receipt = john.swap("m", private=True)
        assert receipt is not None
        assert receipt.freed.host_bytes > 0
        (worker,) = client.workers()
        assert (worker.private_to, worker.replica) == ("john", 1)


def test_two_of_three_fit(shared_supervisor: Any) -> None:
    """The load says so, the two serve, and the third one comes when there is room for it."""
    client = shared_supervisor.client
    client.load("other", runtime="echo", ram=part_of_the_budget(client, 0.3), pin=True)
    share = part_of_the_budget(client, 0.25)
    with pytest.raises(DoesNotFit, match="2 of 3 replicas of model m are ready, and serve") as no:
        client.load("m", runtime="echo", ram=share, replicas=3)
    assert no.value.status == 507
    assert no.value.plan is not None
    reasons = {b["reason"] for b in no.value.plan["blockers"]}
    assert reasons == {"is pinned", "is another replica of it"}
    shown = client.model("m")
    assert (shown.state, shown.replicas, shown.ready) == ("ready", 3, 2)
    assert client.plan("m").fits == "no"
    assert client.predict_json("m", BODY) == ANSWER
    client.unload("other")
    shared_supervisor.until(lambda: client.model("m").ready == 3)


def test_a_load_makes_room_and_a_replica_gives_way(start_supervisor: Callable[..., Any]) -> None:
    """What is idle goes for a replica that somebody asks for; and one of them for others."""
    client = start_supervisor("--minimum-residence", "0").client
    share = part_of_the_budget(client, 0.3)
    client.load("other", runtime="echo", ram=share)
    assert len(client.load("m", runtime="echo", ram=share, replicas=3).workers) == 3
    assert {w.model for w in client.workers()} == {"m"}
    client.load("other")
    assert client.model("m").ready == 2
    assert client.predict_json("m", BODY) == ANSWER


def test_a_restart_of_the_supervisor_keeps_the_number(
    start_supervisor: Callable[..., Any],
) -> None:
    first = start_supervisor()
    first.client.load("m", runtime="echo")
    first.client.scale("m", 3)
    assert first.stop() == 0
    second = start_supervisor()
    second.until(lambda: second.client.model("m").ready == 3)
    assert second.client.model("m").options["replicas"] == 3
