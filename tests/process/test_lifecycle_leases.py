"""Who holds which model, for how long, and what goes when nobody does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from modelsup.client import LoadFailed, UnknownClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0]]}
ANSWER = {"predictions": [[1.0]]}


def models_of_workers(client: Any) -> list[str]:
    return sorted(worker.model for worker in client.workers())


def test_swap_changes_one_clients_model_only(shared_supervisor: Any) -> None:
    """Two clients share a worker; when one swaps, the other keeps it, and the last one ends it."""
    client = shared_supervisor.client
    first = client.swap("anna", "a", runtime="echo")
    assert client.swap("otto", "a").worker == first.worker

    left = client.swap("anna", "b", runtime="echo")
    assert (left.previous, left.receipt, left.kept) == ("a", None, "model a is held by client otto")
    assert models_of_workers(client) == ["a", "b"]

    last = client.swap("otto", "b")
    assert last.worker == left.worker
    assert (last.receipt.worker, last.receipt.verified) == (first.worker, True)
    assert models_of_workers(client) == ["b"]


def test_swap_to_the_same_model_changes_nothing(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    first = client.swap("anna", "a", runtime="echo")
    again = client.swap("anna", "a")
    assert (again.worker, again.receipt, again.kept) == (first.worker, None, "it is the same model")


def test_pinned_model_stays_after_a_swap(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.swap("anna", "a", runtime="echo", pin=True)
    swapped = client.swap("anna", "b", runtime="echo")
    assert (swapped.receipt, swapped.kept) == (None, "model a is pinned")
    assert models_of_workers(client) == ["a", "b"]


def test_private_worker_is_of_one_client(shared_supervisor: Any) -> None:
    """A private worker serves its client alone, and ends with its lease."""
    client = shared_supervisor.client
    shared = client.load("m", runtime="echo").worker
    private = client.swap("anna", "m", private=True).worker
    otto = client.swap("otto", "m").worker
    assert (private != shared, otto) == (True, shared)
    assert {w.id: w.private_to for w in client.workers()} == {private: "anna", shared: None}

    client.session("anna").predict_json(BODY)
    client.predict_json("m", BODY)
    assert {w.id: w.requests for w in client.workers()} == {private: 1, shared: 1}

    assert client.release("anna").receipt.worker == private
    assert [worker.id for worker in client.workers()] == [shared]


def test_private_worker_that_fails_leaves_the_shared_model_alone(
    shared_supervisor: Any, echo_model: Callable[..., str], tmp_path: Path
) -> None:
    """One client's failed try must not make the model look failed to all others."""
    client, flag = shared_supervisor.client, tmp_path / "gate"
    client.add_model("m", echo_model(on_load=[f"gate:{flag}"]))  # no such file yet: it fails
    with pytest.raises(LoadFailed, match="No such file"):
        client.swap("anna", "m", private=True)
    assert client.model("m").state == "unloaded"
    flag.touch()
    assert client.predict_json("m", BODY) == ANSWER
    assert client.swap("anna", "m", private=True).receipt is None
    assert len(client.workers()) == 2


def test_lease_that_is_not_used_ends_and_unloads(shared_supervisor: Any) -> None:
    """A client that crashed must not hold memory for ever."""
    client = shared_supervisor.client
    client.swap("gone", "m", runtime="echo", lease_ttl=0.3)
    shared_supervisor.until(lambda: client.workers() == [])
    with pytest.raises(UnknownClient, match="holds no model"):
        client.client("gone")


def test_lease_that_is_used_lives_on(shared_supervisor: Any) -> None:
    """Each request renews it: the lease outlives many times its length."""
    client = shared_supervisor.client
    client.swap("busy", "m", runtime="echo", lease_ttl=1.0)
    client.swap("idle", "other", runtime="echo", lease_ttl=2.0)
    session = client.session("busy")

    def idle_has_ended() -> bool:
        assert session.predict_json(BODY) == ANSWER
        return [c.id for c in client.clients()] == ["busy"]

    shared_supervisor.until(idle_has_ended)
    assert client.client("busy").requests > 2


def test_idle_model_is_unloaded_unless_it_is_pinned_or_held(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("pinned", runtime="echo", ttl=0.1, pin=True)
    client.swap("anna", "held", runtime="echo", ttl=0.1)
    client.load("idle", runtime="echo", ttl=0.1)
    shared_supervisor.until(lambda: client.model("idle").state == "unloaded")
    client.load("idle")  # and its time has passed twice for the others
    shared_supervisor.until(lambda: client.model("idle").state == "unloaded")
    assert models_of_workers(client) == ["held", "pinned"]


def test_twenty_models_load_at_once(
    shared_supervisor: Any, echo_model: Callable[..., str], background: Callable[..., Any]
) -> None:
    """Loads of different models do not wait for, or mix up with, each other."""
    client = shared_supervisor.client
    names = [f"m{number:02}" for number in range(20)]
    for name in names:
        client.add_model(name, echo_model(name))
    answers = [background(client.predict_json, name, BODY) for name in names]
    assert [answer.result() for answer in answers] == [ANSWER] * 20
    assert models_of_workers(client) == names
    assert len({worker.pid for worker in client.workers()}) == 20

    unloads = [background(client.unload, name) for name in names[:16]]
    assert all(unload.result().verified for unload in unloads)
    assert models_of_workers(client) == names[16:]
