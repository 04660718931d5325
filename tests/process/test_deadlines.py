"""Nothing is done for a request whose time is up, and a worker that lets them all run out ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import TimedOut, Unavailable

from tests.process.conftest import post_and_keep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BODY = {"instances": [[1.0, 2.0]]}
ANSWER = {"predictions": BODY["instances"]}
SHORT = 0.2  # seconds; passes while the worker is held at a gate


def held_at(gate: Path) -> dict[str, Any]:
    return {"signature_name": "command", "inputs": {"command": [f"gate:{gate}"]}}


def succeeded(url: str) -> int:
    (told,) = requests.get(f"{url}/v2/models/m/stats", timeout=10).json()["model_stats"]
    count: int = told["inference_stats"]["success"]["count"]
    return count


@pytest.mark.parametrize("options", [{}, {"max_concurrency": 1}])
def test_what_has_not_begun_is_not_computed(
    shared_supervisor: Any,
    fifo: Callable[[str], Path],
    background: Callable[..., Any],
    options: dict[str, int],
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo", **options)
    first = background(client.predict_json, "m", held_at(gate))
    with gate.open("wb"):
        with pytest.raises(TimedOut, match=r"the 0\.2 s of the request are up") as late:
            client.predict_json("m", BODY, timeout=SHORT)
        assert (late.value.status, late.value.code) == (504, "deadline_exceeded")
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 1)
    first.result()
    assert client.predict_json("m", BODY) == ANSWER
    assert succeeded(shared_supervisor.url) == 2


def test_what_a_client_that_left_asked_for_is_not_computed(
    shared_supervisor: Any, fifo: Callable[[str], Path], background: Callable[..., Any]
) -> None:
    client, gate = shared_supervisor.client, fifo("gate")
    client.load("m", runtime="echo")
    first = background(client.predict_json, "m", held_at(gate))
    with gate.open("wb"):
        leaving = post_and_keep(shared_supervisor.port, "/v1/models/m:predict", BODY)
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 2)
        leaving.close()
        shared_supervisor.until(lambda: client.workers()[0].in_flight == 1)
    first.result()
    assert client.predict_json("m", BODY) == ANSWER
    assert succeeded(shared_supervisor.url) == 2


def test_a_load_that_takes_too_long_is_given_up(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    client = shared_supervisor.client
    client.add_model("m", echo_model(on_load=["hang"]))
    with pytest.raises(TimedOut, match="waits for its model to be loaded"):
        client.predict_json("m", BODY, timeout=SHORT)
    shared_supervisor.until(lambda: client.model("m").state == "unloaded")


def test_a_worker_that_lets_all_requests_run_out_of_time_is_replaced(
    start_supervisor: Callable[..., Any],
) -> None:
    """Its clients all give less time than a request may take: none of them waits so long."""
    supervisor = start_supervisor("--request-timeout", "1")
    client = supervisor.client
    worker = client.load("m", runtime="echo").worker
    hang = {"signature_name": "command", "inputs": {"command": ["hang"]}}

    def replaced() -> bool:
        with pytest.raises((TimedOut, Unavailable)):
            client.predict_json("m", hang, timeout=0.1)
        return worker not in client.model("m").workers

    supervisor.until(replaced)
    assert "ran out of their time" in supervisor.log()
    supervisor.until(lambda: client.model("m").state == "ready")
