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
