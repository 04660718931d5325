"""A prediction says how long its model stays after it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import requests
from modelsup.cli.main import main

ROW = [[1.0]]


def unloaded(supervisor: Any, name: str) -> None:
    supervisor.until(lambda: supervisor.client.model(name).state == "unloaded")


def test_zero_unloads_after_the_request_and_the_next_one_loads_again(
    shared_supervisor: Any,
) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    for _ in range(3):  # the next one may come while the worker still leaves
        assert client.predict("m", ROW, keep_alive=0).tolist() == ROW
    unloaded(shared_supervisor, "m")
    assert client.workers() == []


def test_a_duration_counts_from_the_end_of_the_request(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo")
    client.predict_json("m", {"instances": ROW}, keep_alive="100ms")
    unloaded(shared_supervisor, "m")


def test_a_negative_number_overrides_the_ttl_until_a_load(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("kept", runtime="echo", ttl=0.2)
    client.predict("kept", np.array(ROW), keep_alive=-1)
    client.load("other", runtime="echo", ttl=0.4)
    unloaded(shared_supervisor, "other")
    assert client.model("kept").state == "ready"
    client.load("kept")
    unloaded(shared_supervisor, "kept")


def test_a_ttl_of_zero_unloads_after_each_request(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", ttl=0)
    assert client.model("m").state == "ready"
    client.predict("m", ROW)
    unloaded(shared_supervisor, "m")


def test_the_command_line_takes_it(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", ttl=-1)
    url = ["--url", shared_supervisor.url]
    assert main([*url, "predict", "m", "[[1.0]]", "--keep-alive", "-1"]) == 0
    assert client.model("m").state == "ready"
    assert main([*url, "predict", "m", "[[1.0]]", "--keep-alive", "0"]) == 0
    unloaded(shared_supervisor, "m")


def test_a_pinned_model_stays(shared_supervisor: Any) -> None:
    client = shared_supervisor.client
    client.load("m", runtime="echo", pin=True)
    client.predict("m", ROW, keep_alive=0)
    assert client.model("m").state == "ready"


@pytest.mark.parametrize("path", ["v1/models/m:predict", "v2/models/m/infer", "clients/a/predict"])
def test_a_bad_header_is_refused(shared_supervisor: Any, path: str) -> None:
    client = shared_supervisor.client
    client.swap("a", "m", runtime="echo")
    answer = requests.post(
        f"{shared_supervisor.url}/{path}",
        json={"instances": ROW},
        headers={"X-Modelsup-Keep-Alive": "soon"},
        timeout=10,
    )
    assert answer.status_code == 400
    assert "X-Modelsup-Keep-Alive" in answer.json()["error"]
    assert "30s" in answer.json()["error"]
