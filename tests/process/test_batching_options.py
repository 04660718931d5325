"""The options of batches reach the worker, and what clients are told of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = {"instances": [[1.0, 2.0]]}


def statistics(url: str, model: str) -> Any:
    (told,) = requests.get(f"{url}/v2/models/{model}/stats", timeout=10).json()["model_stats"]
    return told


def test_requests_wait_for_each_other(
    shared_supervisor: Any, background: Callable[..., Any]
) -> None:
    """With a delay that no client would wait for: two make a call full, and it begins."""
    client = shared_supervisor.client
    client.load("m", runtime="echo", max_batch_size=2, max_delay="10s")
    answers = [background(client.predict_json, "m", BODY) for _ in range(4)]
    assert [answer.result() for answer in answers] == [{"predictions": BODY["instances"]}] * 4
    sizes = statistics(shared_supervisor.url, "m")["batch_stats"]
    assert [(size["batch_size"], size["compute_infer"]["count"]) for size in sizes] == [(2, 2)]


def test_options_are_told_and_hold_from_the_next_load(shared_supervisor: Any) -> None:
    client, url = shared_supervisor.client, shared_supervisor.url
    client.load("m", runtime="echo", max_batch_size=8, preferred_batch_sizes=[4, 8])
    config = requests.get(f"{url}/v2/models/m/config", timeout=10).json()
    assert config["max_batch_size"] == 8
    assert config["dynamic_batching"] == {
        "preferred_batch_size": [4, 8],
        "max_queue_delay_microseconds": 0,
    }
    client.load("m", preferred_batch_sizes=[])
    assert client.model("m").options["preferred_batch_sizes"] == []


def test_a_preferred_size_that_no_call_may_have_is_refused(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    with pytest.raises(InvalidRequest, match="batches of 65 rows, and of 64 at most"):
        client.load("m", runtime="echo", preferred_batch_sizes=[4, 65])
    client.load("m", runtime="echo", preferred_batch_sizes=[4, 65], max_batch_size=65)
    with pytest.raises(InvalidRequest, match="of 65 rows, and of 8 at most"):
        client.load("m", max_batch_size=8)
