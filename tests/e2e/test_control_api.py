"""The control API's answers, key by key: other people's scripts depend on them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
import requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Supervisor

RECEIPT = {
    "model": str,
    "worker": str,
    "outcome": str,
    "in_flight_completed": int,
    "in_flight_aborted": int,
    "freed": {"host_bytes": int, "gpu_bytes": dict},
    "verified": bool,
    "reason": (str, None),
    "seconds": {"drain": float, "exit": float, "memory_back": float, "total": float},
}
TENSOR = {"name": str, "dtype": str, "shape": list}
OPTIONS = {
    "gpu_memory_fraction",
    "gpu_memory",
    "ram",
    "device",
    "pin",
    "ttl",
    "threads",
    "priority",
    "max_requests",
    "recycle_above",
    "warm_up_batch",
    "max_batch_size",
    "max_delay",
    "preferred_batch_sizes",
    "max_concurrency",
    "max_queue",
    "replicas",
    "retry",
    "prepare",
    "keep",
    "labels",
    "image",
    "classes",
}
MODEL = {
    "name": str,
    "source": (str, None),
    "runtime": str,
    "version": (str, None),
    "versions": list,
    "state": str,
    "workers": list,
    "clients": list,
    "pinned": bool,
    "options": dict,
    "failure": (dict, None),
    "signatures": (list, None),
    "prepared": {"state": str, "reason": str, "form": (str, None), "bytes": int},
    "residency": str,
    "waiting": int,
    "replicas": int,
    "ready": int,
}
WORKER = {
    "id": str,
    "model": str,
    "version": str,
    "runtime": str,
    "pid": (int, None),
    "state": str,
    "since": float,
    "device": (str, None),
    "private_to": (str, None),
    "clients": list,
    "pinned": bool,
    "in_flight": int,
    "requests": int,
    "last_used_at": (float, None),
    "restarts": int,
    "memory": {"pss_bytes": int, "uss_bytes": int, "rss_bytes": int},
    "gpu_memory_limit_bytes": (int, None),
    "charges": dict,
    "estimated": bool,
    "memory_stages": dict,
    "framework": (str, None),
    "seconds": dict,
    "failure": (dict, None),
    "guard": (str, None),
    "from_prepared": bool,
    "replica": int,
}
CLIENT = {
    "id": str,
    "model": str,
    "version": str,
    "worker": (str, None),
    "private": bool,
    "since": float,
    "expires_in_seconds": float,
    "requests": int,
}
LOADED = {
    "model": str,
    "version": str,
    "worker": str,
    "workers": list,
    "state": str,
    "already_loaded": bool,
    "seconds": dict,
    "memory": {"host_bytes": int, "gpu_bytes": dict},
    "warnings": list,
}
SWAP = {
    "client": str,
    "model": str,
    "version": str,
    "worker": str,
    "previous": (str, None),
    "receipt": (dict, None),
    "kept": (str, None),
    "seconds": {"load": float, "total": float},
}
RELEASED = {"client": str, "model": str, "receipt": (dict, None), "kept": (str, None)}
STATUS = {
    "version": str,
    "pid": int,
    "url": str,
    "state_dir": str,
    "started_at": float,
    "uptime_seconds": float,
    "state": str,
    "models": {"known": int, "loaded": int},
    "workers": int,
    "clients": int,
    "forkservers": list,
    "grpc": (str,),
}
MEMORY = {
    "host": {
        "total_bytes": int,
        "available_bytes": int,
        "limit_bytes": (int, None),
        "budget_bytes": int,
        "charged_bytes": int,
        "own_bytes": int,
        "kept_bytes": int,
        "supervisor_bytes": int,
        "forkservers_bytes": int,
        "workers_bytes": int,
        "tree_bytes": int,
    },
    "gpus": list,
    "workers": list,
    "queue": list,
}


def check(value: Any, shape: Any, path: str = "answer") -> None:
    """Assert that a JSON value has exactly the keys of a shape, and values of its types."""
    if isinstance(shape, dict):
        assert isinstance(value, dict), path
        assert value.keys() == shape.keys(), path
        for key, inner in shape.items():
            check(value[key], inner, f"{path}.{key}")
    elif isinstance(shape, tuple):
        if value is not None:
            check(value, shape[0], path)
    else:
        assert type(value) is shape, f"{path} is {value!r}"


class Api:
    """Calls of the control API, by path below /api."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, method: str, path: str, status: int = 200, **request: Any) -> Any:
        """Return the JSON of an answer that must have this status."""
        answer = requests.request(method, f"{self._url}/api/{path}", timeout=30, **request)
        assert answer.status_code == status, answer.text
        kind = "application/json" if status < 400 else "application/problem+json"
        assert answer.headers["Content-Type"] == kind
        return answer.json()


@pytest.fixture
def api(shared_supervisor: Supervisor) -> Api:
    return Api(shared_supervisor.url)


@pytest.fixture
def model(shared_supervisor: Supervisor, echo_model: Callable[..., str]) -> str:
    """A loaded echo model "m"; its source."""
    source = echo_model("m")
    shared_supervisor.client.load("m", source)
    return source


def test_status(shared_supervisor: Supervisor, api: Api, model: str) -> None:
    status = api("GET", "status")
    check(status, STATUS)
    check(status["forkservers"], list)
    check(status["forkservers"][0], {"runtime": str, "pid": int, "state": str})
    assert status["pid"] == shared_supervisor.pid
    assert status["url"] == shared_supervisor.url
    assert status["state"] == "running"
    assert status["models"]["loaded"] == status["workers"] == 1
    assert 0 < time.time() - status["started_at"] < 600


def test_catalogue(api: Api, echo_model: Callable[..., str]) -> None:
    source = echo_model("new")
    options = {"threads": 2, "ttl": "10m", "pin": True, "ram": "1.5GiB"}
    created = api("PUT", "models/new", 201, json={"source": source, "options": options})
    check(created, MODEL)
    assert created["options"].keys() == OPTIONS
    assert created["options"]["ttl"] == 600.0
    assert created["options"]["ram"] == 1.5 * 2**30
    assert (created["state"], created["source"], created["runtime"]) == ("unloaded", source, "echo")
    assert (created["versions"], created["workers"], created["failure"]) == (["1"], [], None)
    again = api("PUT", "models/new", 200, json={"source": source, "options": {"threads": 1}})
    assert again["options"]["threads"] == 1
    assert api("GET", "models/new") == again
    assert again in api("GET", "models")["models"]
    assert api("DELETE", "models/new") == {"model": "new", "removed": True}
    assert api("GET", "models/new", 404)["code"] == "unknown_model"


def test_an_option_that_is_given_as_false_or_0_undoes_what_was_said(
    api: Api, echo_model: Callable[..., str]
) -> None:
    """It was taken for one that is not given: a pin, once set, could not be taken back."""
    said = {"pin": True, "priority": 5, "max_requests": 9, "recycle_above": "1GB", "ttl": "10m"}
    undone = {"pin": False, "priority": 0, "max_requests": 0, "recycle_above": 0, "ttl": 0}
    api("PUT", "models/new", 201, json={"source": echo_model("new"), "options": said})
    kept = api("PUT", "models/new", 200, json={"options": {"threads": 1}})
    assert kept["pinned"]
    assert kept["options"]["priority"] == 5
    changed = api("PUT", "models/new", 200, json={"options": undone})
    assert not changed["pinned"]
    assert {name: changed["options"][name] for name in undone} == undone


def test_load_and_unload(api: Api, echo_model: Callable[..., str]) -> None:
    loaded = api("POST", "models/l/load", json={"source": echo_model("l")})
    check(loaded, LOADED)
    assert loaded["state"] == "ready"
    assert {"fork", "load", "warm", "total"} <= loaded["seconds"].keys()
    again = api("POST", "models/l/load?wait=60s")
    assert (again["already_loaded"], again["worker"]) == (True, loaded["worker"])
    shown = api("GET", "models/l")
    check(shown, MODEL)
    signature = shown["signatures"][0]
    assert signature.keys() == {"name", "inputs", "outputs", "batchable", "method"}
    check(signature["inputs"][0], TENSOR)

    receipt = api("POST", "models/l/unload", json={"timeout": "5s"})

    check(receipt, RECEIPT)
    assert receipt["worker"] == loaded["worker"]
    assert api("POST", "models/l/unload", 409)["code"] == "not_loaded"


def test_load_without_waiting(
    api: Api, echo_model: Callable[..., str], fifo: Callable[[str], Path]
) -> None:
    gate = fifo("gate")
    source = echo_model("later", on_load=[f"gate:{gate}"])
    started = api("POST", "models/later/load?wait=0", 202, json={"source": source})
    assert started.keys() == {"model", "state", "status_url"}
    assert started["state"] in {"starting", "loading"}
    assert api("GET", started["status_url"].removeprefix("/api/"))["name"] == "later"
    with gate.open("wb"):
        pass
    assert api("POST", "models/later/load")["model"] == "later"


def test_workers_and_memory(shared_supervisor: Supervisor, api: Api, model: str) -> None:
    shared_supervisor.client.predict("m", [[1.0]])
    (worker,) = api("GET", "workers")["workers"]
    check(worker, WORKER)
    assert worker["requests"] == 1
    assert api("GET", f"workers/{worker['id']}")["pid"] == worker["pid"]
    memory = api("GET", "memory")
    check(memory, MEMORY)
    (share,) = memory["workers"]
    names = {"id": str, "model": str, "pss_bytes": int, "uss_bytes": int, "rss_bytes": int}
    check(share, names)
    host = memory["host"]
    parts = host["supervisor_bytes"] + host["forkservers_bytes"] + host["workers_bytes"]
    assert host["tree_bytes"] == parts


def test_swap_and_release(api: Api, model: str) -> None:
    swapped = api("PUT", "clients/anna/model", json={"model": "m", "ttl": "10m"})
    check(swapped, SWAP)
    assert (swapped["previous"], swapped["receipt"], swapped["kept"]) == (None, None, None)
    shown = api("GET", "clients/anna")
    check(shown, CLIENT)
    assert api("GET", "clients")["clients"][0]["id"] == "anna"
    held = api("POST", "models/m/unload", 409)
    assert (held["code"], held["clients"]) == ("held", ["anna"])

    other = {"model": "other", "runtime": "echo", "private": True}
    again = api("PUT", "clients/anna/model", json=other)

    check(again, SWAP)
    check(again["receipt"], RECEIPT)
    assert (again["previous"], again["receipt"]["model"]) == ("m", "m")
    assert api("GET", f"workers/{again['worker']}")["private_to"] == "anna"
    released = api("DELETE", "clients/anna")
    check(released, RELEASED)
    check(released["receipt"], RECEIPT)
    assert api("GET", "clients/anna", 404)["code"] == "unknown_client"


def test_a_model_that_others_hold_is_kept(
    shared_supervisor: Supervisor, api: Api, model: str
) -> None:
    for client in ("anna", "otto"):
        api("PUT", f"clients/{client}/model", json={"model": "m"})
    released = api("DELETE", "clients/anna")
    assert released["receipt"] is None
    assert "otto" in released["kept"]
    forced = api("POST", "models/m/unload", json={"force": True})
    assert forced["outcome"] == "forced"
    assert api("GET", "clients")["clients"] == []


def test_a_model_with_several_workers_gives_a_receipt_of_each(api: Api, model: str) -> None:
    for client in ("anna", "otto"):
        api("PUT", f"clients/{client}/model", json={"model": "m", "private": True})
    receipt = api("POST", "models/m/unload", json={"force": True})
    assert receipt.keys() == RECEIPT.keys() | {"workers"}
    for one in receipt["workers"]:
        check(one, RECEIPT)
    assert len({one["worker"] for one in receipt["workers"]}) == 3
    total = sum(one["freed"]["host_bytes"] for one in receipt["workers"])
    assert receipt["freed"]["host_bytes"] == total


def test_a_failed_load_is_a_problem_and_stays_visible(
    api: Api, echo_model: Callable[..., str]
) -> None:
    source = echo_model("bad", on_load=["print:last words", "fail:no such layer"])
    problem = api("POST", "models/bad/load", 422, json={"source": source})
    assert {"type", "title", "status", "detail", "code", "model", "cause", "log"} == problem.keys()
    assert (problem["code"], problem["cause"]) == ("load_failed", "load_error")
    assert "last words" in problem["log"]
    shown = api("GET", "models/bad")
    assert shown["state"] == "failed"
    assert shown["failure"].keys() == {"cause", "message", "log", "at"}
    assert shown["failure"]["message"] == "no such layer"


def test_logs(shared_supervisor: Supervisor, model: str) -> None:
    shared_supervisor.client.predict("m", ["print:first", "print:second"], "command")
    url = f"{shared_supervisor.url}/api/models/m/logs"
    answer = requests.get(url, params={"tail": 1}, timeout=30)
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.text == "second\n"
    with requests.get(url, params={"follow": 1, "tail": 0}, stream=True, timeout=30) as followed:
        shared_supervisor.client.predict("m", ["print:third"], "command")
        assert next(followed.iter_lines()) == b"third"


def test_probes(shared_supervisor: Supervisor) -> None:
    assert requests.get(f"{shared_supervisor.url}/healthz", timeout=30).json() == {"status": "ok"}
    assert requests.get(f"{shared_supervisor.url}/readyz", timeout=30).status_code == 200


def test_a_page_of_another_site_changes_nothing(
    shared_supervisor: Supervisor, api: Api, model: str
) -> None:
    foreign = {"Origin": "http://evil.example"}
    assert api("POST", "stop", 403, headers=foreign)["code"] == "forbidden_origin"
    assert api("POST", "models/m/unload", 403, headers=foreign)["code"] == "forbidden_origin"
    assert api("GET", "status")["state"] == "running"


def test_stop(start_supervisor: Callable[..., Supervisor]) -> None:
    supervisor = start_supervisor()
    supervisor.client.load("m", runtime="echo")
    answer = Api(supervisor.url)("POST", "stop", 202)
    assert answer == {"state": "stopping", "pid": supervisor.pid}
    assert supervisor.process.wait(30) == 0
