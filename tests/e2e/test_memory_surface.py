"""What people and programs see of the memory: plans, refusals, budgets, charges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import requests
from modelsup.client import DoesNotFit

if TYPE_CHECKING:
    from collections.abc import Callable

HUGE = "1000TB"


def test_what_is_larger_than_the_machine_is_refused_with_its_plan(
    shared_supervisor: Any, echo_model: Callable[..., str]
) -> None:
    with pytest.raises(DoesNotFit, match="it needs 1000000000 MB of host") as caught:
        shared_supervisor.client.load("m", echo_model("m"), ram=HUGE)
    plan = caught.value.plan
    assert plan is not None
    assert (plan["fits"], plan["charges"]) == ("no", {"host": 10**15})
    assert shared_supervisor.run("load", "m", check=False).returncode == 5


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v1/models/m:predict", {"instances": [1.0]}),
        (
            "v2/models/m/infer",
            {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}]},
        ),
    ],
)
def test_a_prediction_of_what_does_not_fit(
    shared_supervisor: Any, echo_model: Callable[..., str], path: str, body: Any
) -> None:
    shared_supervisor.client.add_model("m", echo_model("m"), ram=HUGE)
    answer = requests.post(f"{shared_supervisor.url}/{path}", json=body, timeout=60)
    assert answer.status_code == 507
    assert answer.headers["X-Modelsup-Error"] == "does_not_fit"
    assert "m does not fit" in json.loads(answer.content)["error"]


def test_a_plan_says_what_would_happen_and_does_nothing(
    start_supervisor: Callable[..., Any], echo_model: Callable[..., str]
) -> None:
    supervisor = start_supervisor("--minimum-residence", "0")
    client = supervisor.client
    most = client.memory().host.limit_bytes
    assert most is not None
    client.load("old", echo_model("old"), ram=int(most * 0.6))
    client.add_model("new", echo_model("new"), ram=int(most * 0.5))

    plan = client.plan("new")

    assert (plan.fits, plan.device, plan.charges) == ("after eviction", None, {"host": most // 2})
    assert [victim.model for victim in plan.victims] == ["old"]
    assert [worker.model for worker in client.workers()] == ["old"]
    assert (client.model("new").state, client.model("new").version) == ("unloaded", None)
    assert "unloads old" in supervisor.run("plan", "new").stdout
    client.swap("anna", "old")
    assert "old" in supervisor.run("plan", "new", check=False).stdout
    assert supervisor.run("plan", "new", check=False).returncode == 5
    assert client.plan("new").blockers[0].reason == "is held by anna"
    assert client.plan("old").reason == "it is ready already"


def test_a_plan_of_what_is_not_there(shared_supervisor: Any) -> None:
    assert shared_supervisor.run("plan", "nobody", check=False).returncode == 4
