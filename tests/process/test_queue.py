"""A model has as many requests at its worker as it may, and no more wait than may."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import Busy, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0, 2.0]]}
ANSWER = {"predictions": BODY["instances"]}


def test_requests_wait_for_their_turn_and_the_queue_is_bounded(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo", max_concurrency=1, max_queue=2)
    held = {"signature_name": "command", "inputs": {"command": [f"gate:{gate}"]}}
    first = background(client.predict_json, "m", held)
    with gate.open("wb"):
        waiting = [background(client.predict_json, "m", BODY) for _ in range(2)]
        shared_supervisor.until(lambda: client.model("m").waiting == 2)
        with pytest.raises(Busy, match="the queue of model m is full: 2 requests wait") as full:
            client.predict_json("m", BODY)
        assert (full.value.status, full.value.code, full.value.retry_after) == (
            429,
            "queue_full",
            1,
        )
        (worker,) = client.workers()
        assert (worker.in_flight, worker.requests) == (1, 1)
        url = f"{shared_supervisor.url}/v2/models/m/stats"
        assert requests.get(url, timeout=10).json()["model_stats"][0]["waiting"] == 2
        client.add_model("m", max_queue=3)
        waiting.append(background(client.predict_json, "m", BODY))
        shared_supervisor.until(lambda: client.model("m").waiting == 3)
    first.result()
    assert [answer.result() for answer in waiting] == [ANSWER] * 3
    assert client.model("m").waiting == 0


def test_what_waits_for_a_load_counts(
    shared_supervisor: Any,
    echo_model: Callable[..., str],
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.add_model("m", echo_model(on_load=[f"gate:{gate}"]), max_queue=1)
    waiting = [background(client.predict_json, "m", BODY) for _ in range(2)]
    with gate.open("wb"):
        shared_supervisor.until(lambda: client.model("m").waiting == 2)
        with pytest.raises(Busy):
            client.predict_json("m", BODY)
    assert [answer.result() for answer in waiting] == [ANSWER] * 2


def test_an_unload_tells_those_who_wait_for_their_turn(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    """They would load the model again; those at the worker are served."""
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo", max_concurrency=1)
    held = {"signature_name": "command", "inputs": {"command": [f"gate:{gate}"]}}
    first = background(client.predict_json, "m", held)
    with gate.open("wb"):
        waiting = background(client.predict_json, "m", BODY)
        shared_supervisor.until(lambda: client.model("m").waiting == 1)
        unload = background(client.unload, "m")
        with pytest.raises(Unavailable, match="unloaded while the request waited") as told:
            waiting.result()
        assert told.value.code == "stopping"
    first.result()
    assert (unload.result().in_flight_completed, client.workers()) == (1, [])
