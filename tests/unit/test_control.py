"""The control API: a real Flask application over a small fleet on a real event loop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from modelsup.supervisor import errors
from modelsup.supervisor.domain import Failure, Memory, Options, Receipt
from modelsup.supervisor.fleet.events import Events
from modelsup.supervisor.fleet.views import (
    Books,
    ClientView,
    Loaded,
    ModelView,
    Plan,
    Released,
    Scaled,
    Swapped,
    WorkerView,
)
from modelsup.supervisor.http.control import Control, create_control
from modelsup.supervisor.http.control_ports import Forkserver, Gpu, GpuProcess, HostMemory
from modelsup.supervisor.policy.admission import Victim
from modelsup.worker.contract import Signature, TensorInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flask.testing import FlaskClient

SIGNATURE = Signature(
    "serving_default",
    (TensorInfo("x", "float32", (None, 2)),),
    (TensorInfo("y", "float32", None),),
    batchable=True,
)
MODEL = ModelView(
    name="m",
    source="/m.keras",
    runtime="tensorflow",
    version="1",
    versions=("1",),
    state="ready",
    workers=("w1",),
    clients=("john",),
    pinned=False,
    options=Options(ttl=60.0),
    failure=None,
    signatures=(SIGNATURE,),
)
WORKER = WorkerView(
    id="w1",
    model="m",
    version="1",
    runtime="tensorflow",
    pid=11,
    state="ready",
    since=1.0,
    device="GPU-a",
    private_to=None,
    clients=("john",),
    pinned=False,
    in_flight=0,
    requests=3,
    last_used_at=None,
    restarts=0,
    gpu_memory_limit_bytes=None,
    charges={"host": 400, "GPU-a": 5000},
    estimated=False,
    memory_stages={"load": 80, "peak": 90},
    framework="tensorflow 2.21.0",
    seconds={"load": 0.5},
    failure=None,
)
ENDED = dataclasses.replace(
    WORKER, id="w0", state="failed", failure=Failure("signal:9", "killed, out of memory?")
)
PLAN = Plan(
    model="m",
    fits="after eviction",
    device="GPU-a",
    charges={"host": 5},
    estimated=True,
    victims=(Victim("w1", "old", "idle for 9 s"),),
    blockers=(),
    reason="",
    seconds=None,
)
RECEIPT = Receipt("m", "w1", "drained", 2, 0, 1000, {"GPU-a": 5}, True, 0.1, 0.2, 0.3, 0.4)


GPU = Gpu(
    uuid="GPU-a",
    name="H200",
    index=0,
    total=8000,
    used=6000,
    free=2000,
    processes=(GpuProcess(11, 4500), GpuProcess(99, 1000)),
    reason=None,
)


class Fleet:
    """Answers with fixed data, notes each wish, and insists on the event loop's thread."""

    def __init__(self) -> None:
        self.events = Events(self)
        self.wishes: list[tuple[Any, ...]] = []
        self.error: Exception | None = None
        self.receipts = [RECEIPT]
        self.loading = threading.Event()  # a load has begun
        self.hold_loads = False
        self.thread = 0

    def wall(self) -> float:
        return 1.0

    def monotonic(self) -> float:
        return 1.0

    def _note(self, *wish: Any) -> None:
        assert threading.get_ident() == self.thread
        self.wishes.append(wish)
        if self.error is not None:
            raise self.error

    def put_model(self, *wish: Any) -> tuple[ModelView, bool]:
        self._note("put", *wish)
        return MODEL, len(self.wishes) == 1

    def remove_model(self, name: str) -> None:
        self._note("remove", name)

    def models(self) -> list[ModelView]:
        self._note("models")
        return [MODEL, dataclasses.replace(MODEL, name="n", state="unloaded")]

    def model(self, name: str) -> ModelView:
        self._note("model", name)
        if name != "m":
            raise errors.UnknownModel(f"no model {name!r}", model=name)
        return MODEL

    def workers(self) -> list[WorkerView]:
        self._note("workers")
        return [WORKER, ENDED]

    def worker(self, uid: str) -> WorkerView:
        self._note("worker", uid)
        if uid != "w1":
            raise errors.UnknownWorker(f"no worker {uid!r}")
        return WORKER

    def books(self) -> Books:
        self._note("books")
        return Books({"host": 1800, "GPU-a": 7600}, {"host": 400, "GPU-a": 5000}, 530, ("n",))

    def clients(self) -> list[ClientView]:
        self._note("clients")
        return [ClientView("john", "m", "1", "w1", False, 1.0, 59.5, 3)]

    def client(self, client: str) -> ClientView:
        self._note("client", client)
        if client != "john":
            raise errors.UnknownClient(f"no client {client!r}", client=client)
        return self.clients()[0]

    async def load(self, *wish: Any) -> Loaded | None:
        self._note("load", *wish)
        if self.hold_loads:
            self.loading.set()
            await asyncio.Event().wait()
        if wish[-1] == 0:
            return None
        return Loaded("m", "1", "w1", False, {"total": 0.5}, 48, ("no GPU here",), ("w1", "w2"))

    async def scale(self, name: str, replicas: int, wait: float) -> Scaled | None:
        self._note("scale", name, replicas, wait)
        return Scaled("m", 1, ("w1",), tuple(self.receipts), 0.5) if wait else None

    async def plan(self, name: str) -> Plan:
        self._note("plan", name)
        return PLAN

    async def unload(self, *wish: Any) -> list[Receipt]:
        self._note("unload", *wish)
        return self.receipts

    async def swap(self, *wish: Any) -> Swapped:
        self._note("swap", *wish)
        return Swapped("john", "m", "1", "w1", "old", RECEIPT, None, {"load": 0.1, "total": 0.2})

    async def release(self, client: str) -> Released:
        self._note("release", client)
        return Released(client, "m", None, "ann still holds it")


class Line:
    def __init__(self, text: str) -> None:
        self.text = text


class Logs:
    def tail(self, model: str, count: int) -> list[Line]:
        return [Line(f"{model} line {number}") for number in (1, 2, 3)][-count:]

    def subscribe(self, model: str) -> Any:
        raise AssertionError("Flask does not follow logs")


class Facts:
    version = "1.2.3"
    pid = os.getpid()
    url = "http://127.0.0.1:8501"
    grpc = "127.0.0.1:8500"
    state_dir = "/state"
    started_at = 1000.0

    def __init__(self) -> None:
        self.stop_requested = False
        self.gpu = GPU

    async def gpus(self) -> list[Gpu]:
        return [self.gpu]

    def stopping(self) -> bool:
        return self.stop_requested

    def forkservers(self) -> list[Forkserver]:
        return [Forkserver("tensorflow", 22, "ready"), Forkserver("echo", None, "idle")]

    def request_stop(self) -> None:
        self.stop_requested = True

    def process_memory(self, pid: int) -> Memory | None:
        return {11: Memory(100, 90, 120), 22: Memory(500, 1, 1), self.pid: Memory(30, 1, 1)}[pid]

    def host_memory(self) -> HostMemory:
        return HostMemory(total=4000, available=3000, limit=2000)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def facts() -> Facts:
    return Facts()


@pytest.fixture
def loop(fleet: Fleet) -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    assert thread.ident is not None
    fleet.thread = thread.ident
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def control(fleet: Fleet, loop: asyncio.AbstractEventLoop, facts: Facts) -> Control:
    return create_control(fleet, loop, facts, Logs())


@pytest.fixture
def api(control: Control) -> FlaskClient:
    return control.wsgi.test_client()


def test_status(api: FlaskClient) -> None:
    body = api.get("/api/status").get_json()
    assert body.pop("uptime_seconds") > 0
    assert body == {
        "version": "1.2.3",
        "pid": os.getpid(),
        "url": "http://127.0.0.1:8501",
        "grpc": "127.0.0.1:8500",
        "state_dir": "/state",
        "started_at": 1000.0,
        "state": "running",
        "models": {"known": 2, "loaded": 1},
        "workers": 2,
        "clients": 1,
        "forkservers": [
            {"runtime": "tensorflow", "pid": 22, "state": "ready"},
            {"runtime": "echo", "pid": None, "state": "idle"},
        ],
    }


def test_events_can_be_listed(api: FlaskClient, fleet: Fleet) -> None:
    fleet.events.tell("idle", "unloading an idle model", model="m")
    event = {"id": 1001, "at": 1.0, "kind": "idle", "message": "unloading an idle model"}
    assert api.get("/api/events?follow=0").get_json() == {
        "events": [event | {"facts": {"model": "m"}}],
        "last_id": 1001,
    }
    assert api.get("/api/events?follow=0&tail=3").status_code == 422
    headers = {"Last-Event-ID": "last"}
    assert api.get("/api/events?follow=0", headers=headers).status_code == 422


def test_stop_answers_before_the_end(api: FlaskClient, facts: Facts) -> None:
    response = api.post("/api/stop")
    assert (response.status_code, response.get_json()) == (
        202,
        {"state": "stopping", "pid": os.getpid()},
    )
    assert facts.stop_requested
    assert api.get("/api/status").get_json()["state"] == "stopping"


def test_memory_sums_the_tree(api: FlaskClient) -> None:
    assert api.get("/api/memory").get_json() == {
        "host": {
            "total_bytes": 4000,
            "available_bytes": 3000,
            "limit_bytes": 2000,
            "budget_bytes": 1800,
            "charged_bytes": 400,
            "own_bytes": 530,
            "kept_bytes": 0,
            "supervisor_bytes": 30,
            "forkservers_bytes": 500,
            "workers_bytes": 100,
            "tree_bytes": 630,
        },
        "gpus": [
            {
                "uuid": "GPU-a",
                "name": "H200",
                "index": 0,
                "total_bytes": 8000,
                "budget_bytes": 7600,
                "charged_bytes": 5000,
                "used_bytes": 6000,
                "free_bytes": 2000,
                "workers_bytes": 4500,
                "others_bytes": 1500,
                "processes": [
                    {"pid": 11, "memory_bytes": 4500, "worker": "w1"},
                    {"pid": 99, "memory_bytes": 1000, "worker": None},
                ],
                "reason": None,
            }
        ],
        "workers": [
            {"id": "w1", "model": "m", "pss_bytes": 100, "uss_bytes": 90, "rss_bytes": 120}
        ],
        "queue": ["n"],
    }


@pytest.mark.parametrize(
    ("changes", "held", "others", "reason"),
    [
        ({"processes": ()}, 0, 6000, None),
        (
            {"processes": (), "used": 10**9},
            None,
            None,
            "none of its processes has the pid of a worker",
        ),
        ({"processes": (GpuProcess(11, None),), "reason": "unknown"}, None, None, "unknown"),
        ({"processes": None, "reason": "too old"}, None, None, "too old"),
        ({"used": None, "processes": None, "reason": "hangs"}, None, None, "hangs"),
        (
            {"processes": (GpuProcess(4711, 5000),)},
            None,
            None,
            "none of its processes has the pid of a worker",
        ),
    ],
)
def test_what_is_not_known_of_a_gpu_is_null_with_a_reason(
    api: FlaskClient,
    facts: Facts,
    changes: dict[str, Any],
    held: int | None,
    others: int | None,
    reason: str | None,
) -> None:
    facts.gpu = dataclasses.replace(GPU, **changes)
    (gpu,) = api.get("/api/memory").get_json()["gpus"]
    assert (gpu["workers_bytes"], gpu["others_bytes"], gpu["reason"]) == (held, others, reason)


def test_a_model_is_shown_with_its_signatures(api: FlaskClient) -> None:
    body = api.get("/api/models/m").get_json()
    assert set(body) == set(ModelView.__dataclass_fields__)
    assert body["options"]["ttl"] == 60.0
    assert body["signatures"] == [
        {
            "name": "serving_default",
            "inputs": [{"name": "x", "dtype": "float32", "shape": [None, 2]}],
            "outputs": [{"name": "y", "dtype": "float32", "shape": None}],
            "batchable": True,
            "method": "predict",
        }
    ]
    names = [model["name"] for model in api.get("/api/models").get_json()["models"]]
    assert names == ["m", "n"]


def test_workers_are_shown_with_their_memory(api: FlaskClient) -> None:
    one = api.get("/api/workers/w1").get_json()
    assert one["memory"] == {"pss_bytes": 100, "uss_bytes": 90, "rss_bytes": 120}
    assert set(one) == {*WorkerView.__dataclass_fields__, "memory"}
    both = api.get("/api/workers").get_json()["workers"]
    assert both[0] == one
    assert both[1]["failure"]["cause"] == "signal:9"


def test_an_ended_workers_pid_is_not_measured(api: FlaskClient) -> None:
    """The pid may belong to another process by now."""
    assert api.get("/api/workers").get_json()["workers"][1]["memory"] is None


def test_clients(api: FlaskClient) -> None:
    one = api.get("/api/clients/john").get_json()
    assert one["expires_in_seconds"] == 59.5
    assert api.get("/api/clients").get_json() == {"clients": [one]}


def test_a_plan_names_what_would_go(api: FlaskClient, fleet: Fleet) -> None:
    body = api.get("/api/models/m/plan").get_json()
    assert body.keys() == Plan.__dataclass_fields__.keys()
    assert body["victims"] == [{"worker": "w1", "model": "old", "reason": "idle for 9 s"}]
    assert fleet.wishes == [("plan", "m")]
    assert api.get("/api/models/m/plan?wait=1").status_code == 422


def test_put_says_whether_the_model_is_new(api: FlaskClient, fleet: Fleet) -> None:
    body = {"source": "/m.keras", "options": {"ram": "1GB"}}
    first = api.put("/api/models/m", json=body)
    second = api.put("/api/models/m", json=body)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.get_json()["name"] == "m"
    assert fleet.wishes[0] == ("put", "m", "/m.keras", None, Options(ram=10**9))


def test_delete_takes_a_model_out(api: FlaskClient, fleet: Fleet) -> None:
    assert api.delete("/api/models/m").get_json() == {"model": "m", "removed": True}
    assert fleet.wishes == [("remove", "m")]


def test_load_waits_and_passes_warnings_on(api: FlaskClient, fleet: Fleet) -> None:
    response = api.post("/api/models/m/load?wait=60s", json={"source": "/m.keras"})
    assert response.get_json() == {
        "model": "m",
        "version": "1",
        "worker": "w1",
        "workers": ["w1", "w2"],
        "state": "ready",
        "already_loaded": False,
        "seconds": {"total": 0.5},
        "memory": {"host_bytes": 48, "gpu_bytes": {}},
        "warnings": ["no GPU here"],
    }
    assert fleet.wishes == [("load", "m", "/m.keras", None, None, 60.0)]


def test_a_load_that_is_not_ready_in_time_answers_202(api: FlaskClient) -> None:
    response = api.post("/api/models/m/load?wait=0")
    assert response.status_code == 202
    assert response.get_json() == {
        "model": "m",
        "state": "ready",
        "status_url": "/api/models/m",
    }


def test_scale_answers_with_the_receipt_of_those_that_went(api: FlaskClient, fleet: Fleet) -> None:
    response = api.post("/api/models/m/scale?wait=5", json={"replicas": 1})
    assert response.get_json() == {
        "model": "m",
        "replicas": 1,
        "workers": ["w1"],
        "receipt": RECEIPT.to_json(),
        "seconds": 0.5,
    }
    assert api.post("/api/models/m/scale?wait=0", json={"replicas": 3}).status_code == 202
    assert fleet.wishes == [("scale", "m", 1, 5.0), ("scale", "m", 3, 0.0), ("model", "m")]
    for body in ({}, {"replicas": 0}, {"replicas": 65}, {"replicas": 1, "x": 1}):
        assert api.post("/api/models/m/scale", json=body).status_code == 422


def test_unload_answers_with_the_receipt(api: FlaskClient, fleet: Fleet) -> None:
    response = api.post("/api/models/m/unload", json={"force": True, "timeout": "1m"})
    assert response.get_json() == RECEIPT.to_json()
    assert fleet.wishes == [("unload", "m", True, 60.0)]


def test_the_receipt_of_several_workers_sums_them(api: FlaskClient, fleet: Fleet) -> None:
    other = dataclasses.replace(
        RECEIPT,
        worker="w2",
        outcome="forced",
        in_flight_aborted=1,
        freed_gpu={"GPU-a": 1, "GPU-b": 2},
        verified=False,
        reason="NVML is not answering",
        total=9.0,
    )
    fleet.receipts = [RECEIPT, other]
    body = api.post("/api/models/m/unload").get_json()
    assert body.pop("workers") == [RECEIPT.to_json(), other.to_json()]
    assert body == {
        "model": "m",
        "worker": "w1",
        "outcome": "forced",
        "in_flight_completed": 4,
        "in_flight_aborted": 1,
        "freed": {"host_bytes": 2000, "gpu_bytes": {"GPU-a": 6, "GPU-b": 2}},
        "verified": False,
        "reason": "NVML is not answering",
        "seconds": {"drain": 0.1, "exit": 0.2, "memory_back": 0.3, "total": 9.0},
    }


def test_swap(api: FlaskClient, fleet: Fleet) -> None:
    response = api.put("/api/clients/john/model?wait=5", json={"model": "m", "ttl": "1h"})
    assert response.get_json() == {
        "client": "john",
        "model": "m",
        "version": "1",
        "worker": "w1",
        "previous": "old",
        "receipt": RECEIPT.to_json(),
        "kept": None,
        "seconds": {"load": 0.1, "total": 0.2},
    }
    assert fleet.wishes == [("swap", "john", "m", None, None, None, False, 3600.0, 5.0)]


def test_release_says_why_the_model_stays(api: FlaskClient) -> None:
    assert api.delete("/api/clients/john").get_json() == {
        "client": "john",
        "model": "m",
        "receipt": None,
        "kept": "ann still holds it",
    }


def test_logs_are_plain_lines(api: FlaskClient) -> None:
    response = api.get("/api/models/m/logs?tail=2")
    assert response.text == "m line 2\nm line 3\n"
    assert response.content_type == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/api/models/no", None, 404, "unknown_model"),
        ("GET", "/api/models/no/logs", None, 404, "unknown_model"),
        ("GET", "/api/models/m/logs?tail=x", None, 422, "invalid"),
        ("GET", "/api/workers/no", None, 404, "unknown_worker"),
        ("GET", "/api/clients/no", None, 404, "unknown_client"),
        ("GET", "/api/nothing", None, 404, "not_found"),
        ("GET", "/nothing", None, 404, "not_found"),
        ("GET", "/api//models", None, 404, "not_found"),
        ("GET", "/api/status?x=1", None, 422, "invalid"),
        ("PATCH", "/api/models/m", None, 405, "method_not_allowed"),
        ("GET", "/api/models/m/load", None, 405, "method_not_allowed"),
        ("GET", "/api/stop", None, 405, "method_not_allowed"),
        ("PUT", "/api/models/-m", {"source": "/m"}, 422, "invalid"),
        ("PUT", "/api/models/m", {"sauce": "/m"}, 422, "invalid"),
        ("DELETE", "/api/models/m", {"force": True}, 422, "invalid"),
        ("POST", "/api/models/m/load?wait=soon", None, 422, "invalid"),
        ("POST", "/api/models/m/load", ["x"], 422, "invalid"),
        ("POST", "/api/models/m/unload", {"force": 1}, 422, "invalid"),
        ("PUT", "/api/clients/john/model", {}, 422, "invalid"),
        ("PUT", "/api/clients/-john/model", {"model": "m"}, 422, "invalid"),
        ("POST", "/api/stop", {"now": True}, 422, "invalid"),
    ],
)
def test_refusals_are_problems(
    api: FlaskClient, method: str, path: str, body: Any, status: int, code: str
) -> None:
    sent = {} if body is None else {"json": body}
    response = api.open(path, method=method, **sent)
    assert response.status_code == status
    assert response.content_type == "application/problem+json"
    problem = response.get_json(force=True)
    assert (problem["status"], problem["code"]) == (status, code)
    assert problem["detail"]


def test_a_wrong_method_says_which_are_right(api: FlaskClient) -> None:
    response = api.get("/api/models/m/load")
    assert response.headers["Allow"] == "OPTIONS, POST"


def test_text_that_is_not_json_is_a_bad_request(api: FlaskClient) -> None:
    response = api.post("/api/models/m/load", data="{", content_type="application/json")
    assert (response.status_code, response.get_json(force=True)["code"]) == (400, "bad_request")


def test_a_form_is_refused(api: FlaskClient, fleet: Fleet) -> None:
    response = api.post("/api/models/m/load", data={"source": "/m"})
    assert response.status_code == 415
    assert fleet.wishes == []


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1"])
def test_a_page_of_another_site_may_not_change_anything(
    api: FlaskClient, fleet: Fleet, origin: str
) -> None:
    response = api.post("/api/models/m/unload", headers={"Origin": origin})
    assert response.status_code == 403
    assert response.get_json(force=True)["code"] == "forbidden_origin"
    assert fleet.wishes == []


def test_the_own_page_may_change_and_other_pages_may_look(api: FlaskClient) -> None:
    own = {"Origin": "http://LOCALHOST"}
    assert api.post("/api/models/m/unload", headers=own).status_code == 200
    assert api.get("/api/models", headers={"Origin": "http://evil.example"}).status_code == 200


def test_errors_of_the_fleet_carry_their_data(api: FlaskClient, fleet: Fleet) -> None:
    fleet.error = errors.Held("m is held by ann", model="m", clients=["ann"])
    response = api.post("/api/models/m/unload")
    assert response.status_code == 409
    assert response.get_json(force=True)["clients"] == ["ann"]
    failure = Failure("bad_model", "not a model", log=("oops",))
    fleet.error = errors.LoadFailed("m: not a model", model="m", failure=failure)
    response = api.post("/api/models/m/load")
    assert response.status_code == 422
    assert response.get_json(force=True)["log"] == ["oops"]


def test_what_may_be_tried_again_has_retry_after(api: FlaskClient, fleet: Fleet) -> None:
    fleet.error = errors.Stopping("the supervisor is stopping")
    response = api.post("/api/models/m/load")
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")


def test_a_bug_is_logged_and_not_told(
    api: FlaskClient, fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.error = ZeroDivisionError("secret detail")
    with caplog.at_level(logging.ERROR):
        response = api.get("/api/models")
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "GET /api/models failed" in caplog.text
    assert "ZeroDivisionError: secret detail" in caplog.text


def test_closing_answers_the_waiting_and_the_new(
    control: Control, api: FlaskClient, fleet: Fleet, loop: asyncio.AbstractEventLoop
) -> None:
    """A thread left waiting on a loop that has ended would keep the process alive for ever."""
    fleet.hold_loads = True
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(api.post, "/api/models/m/load")
        assert fleet.loading.wait(10)
        loop.call_soon_threadsafe(control.close)
        assert waiting.result(10).get_json(force=True)["code"] == "stopping"
    later = api.get("/api/models")
    assert (later.status_code, later.get_json(force=True)["code"]) == (503, "stopping")


def test_a_call_after_the_loops_end_is_answered(fleet: Fleet, facts: Facts) -> None:
    ended = asyncio.new_event_loop()
    ended.close()
    api = create_control(fleet, ended, facts, Logs()).wsgi.test_client()
    assert api.get("/api/models").status_code == 503
