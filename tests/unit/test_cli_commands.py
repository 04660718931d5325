"""Every command against a small real HTTP server that gives canned answers: output and exit."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.cli.main import main
from modelsup.client import tensors

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RECEIPT = {
    "model": "m",
    "worker": "w1",
    "outcome": "drained",
    "in_flight_completed": 0,
    "in_flight_aborted": 0,
    "freed": {"host_bytes": 142_000_000, "gpu_bytes": {}},
    "verified": True,
    "seconds": {"drain": 0.0, "exit": 0.0, "memory_back": 0.0, "total": 0.03},
}
LOADED = {
    "model": "m",
    "version": "1",
    "worker": "w1",
    "workers": ["w1"],
    "state": "ready",
    "already_loaded": False,
    "seconds": {"total": 0.154},
    "memory": {"host_bytes": 142_000_000, "gpu_bytes": {}},
    "warnings": ["no GPU here: gpu_memory has no effect"],
}
WORKER = {
    "id": "w1",
    "replica": 2,
    "model": "m",
    "version": "1",
    "runtime": "echo",
    "pid": 77,
    "state": "ready",
    "since": 1.0,
    "device": None,
    "private_to": None,
    "clients": ["john", "anna"],
    "pinned": False,
    "in_flight": 2,
    "requests": 30,
    "last_used_at": None,
    "restarts": 0,
    "memory": {"pss_bytes": 48_000_000, "uss_bytes": 1, "rss_bytes": 2},
    "gpu_memory_limit_bytes": None,
    "charges": {"host": 142_000_000, "GPU-a": 2_000_000_000},
    "estimated": True,
    "memory_stages": {"load": 40_000_000, "peak": 48_000_000},
    "framework": "echo 1",
    "seconds": {},
    "failure": None,
    "guard": "watcher",
}
MODEL = {
    "name": "m",
    "source": "/m.keras",
    "runtime": "tensorflow",
    "version": None,
    "versions": ["1", "2"],
    "state": "failed",
    "workers": [],
    "clients": [],
    "pinned": True,
    "options": {},
    "failure": {"cause": "bad_model", "message": "no such layer", "log": [], "at": 1.0},
    "signatures": None,
    "prepared": {
        "state": "refused",
        "reason": "it draws numbers at random",
        "form": None,
        "bytes": 0,
    },
    "residency": "ram",
    "replicas": 3,
}
FORM = {
    "name": "0123-echo-1",
    "model": "m",
    "source": "/m.keras",
    "framework": "tensorflow 2.21.0",
    "device": "cpu",
    "bytes": 2_000_000,
    "used_at": 1.0,
    "refused": "",
}


class Quiet(ThreadingHTTPServer):
    """Does not print that a client has gone away: some tests have it do so."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Supervisor:
    """Answers each "METHOD path" with what the test says; `seen` keeps the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.seen: list[tuple[str, bytes]] = []
        self.arrived = threading.Event()  # a request has come
        self.gate = threading.Event()  # answers wait for it
        self.gate.set()
        supervisor = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = f"{self.command} {self.path}"
                supervisor.seen.append((request, body))
                supervisor.arrived.set()
                supervisor.gate.wait(60)
                missing = (404, b'{"detail": "no such model", "code": "unknown_model"}', {})
                status, answer, headers = supervisor.answers.get(request, missing)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_DELETE = answer  # noqa: N815

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def say(
        self, request: str, answer: object, status: int = 200, headers: dict[str, str] | None = None
    ) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.answers[request] = (status, body, headers or {})

    def sent(self) -> Any:
        return json.loads(self.seen[-1][1])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    supervisor = Supervisor()
    monkeypatch.setenv("MODELSUP_URL", supervisor.url)
    yield supervisor
    supervisor.close()


Capture = pytest.CaptureFixture[str]


# Loading


def test_load_prints_worker_time_and_memory(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/load?wait=600.0", LOADED)

    options = ["--ttl", "10m", "--gpu-memory", "4GB", "--pin", "--priority", "-3"]
    options += ["--max-requests", "1000", "--recycle-above", "2GB"]
    options += ["--warm-up-batch", "16", "--max-batch-size", "8", "--max-delay", "5ms"]
    options += ["--preferred-batch-sizes", "4,8", "--max-concurrency", "4", "--max-queue", "9"]
    options += ["--no-retry", "--replicas", "3", "--label", "stable=1", "--label", "next=2"]
    options += ["--image", '{"size": [4, 4]}', "--classes", "/names.txt", "--keep", "ram"]
    assert main(["load", "m", "/m.keras", *options]) == 0
    out, err = capsys.readouterr()
    assert out == "m is ready: worker w1, version 1, loaded in 0.15 s, 142 MB host memory\n"
    assert err == "warning: no GPU here: gpu_memory has no effect\n"
    assert supervisor.sent() == {
        "source": "/m.keras",
        "options": {
            "ttl": 600,
            "gpu_memory": "4GB",
            "pin": True,
            "priority": -3,
            "max_requests": 1000,
            "recycle_above": "2GB",
            "warm_up_batch": 16,
            "max_batch_size": 8,
            "max_delay": 0.005,
            "preferred_batch_sizes": [4, 8],
            "max_concurrency": 4,
            "max_queue": 9,
            "replicas": 3,
            "retry": False,
            "keep": "ram",
            "labels": {"stable": "1", "next": "2"},
            "image": {"size": [4, 4]},
            "classes": "/names.txt",
        },
    }


@pytest.mark.parametrize(
    ("option", "value", "told"),
    [
        ("--label", "stable", "'stable' is not LABEL=VERSION"),
        ("--label", "=1", "'=1' is not LABEL=VERSION"),
        ("--image", "{size: 4}", "is not JSON"),
        ("--image", "[4]", "is not a JSON object"),
    ],
)
def test_what_an_option_cannot_be(
    supervisor: Supervisor, capsys: Capture, option: str, value: str, told: str
) -> None:
    assert main(["load", "m", option, value]) == 2
    assert told in capsys.readouterr().err


def test_load_without_waiting(supervisor: Supervisor, capsys: Capture) -> None:
    answer = {"model": "m", "state": "loading", "status_url": "/api/models/m"}
    supervisor.say("POST /api/models/m/load?wait=0", answer, 202)

    assert main(["load", "m", "--no-wait"]) == 0
    assert "m is loading" in capsys.readouterr().out


SCALED = {"model": "m", "replicas": 2, "workers": ["w1", "w2"], "receipt": None, "seconds": 0.5}


def test_scale(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/scale?wait=600.0", SCALED)
    assert main(["scale", "m", "2"]) == 0
    assert supervisor.sent() == {"replicas": 2}
    assert main(["scale", "m", "2", "--json"]) == 0
    text, *json_lines = capsys.readouterr().out.splitlines()
    assert text == "m has 2 workers"
    assert json.loads("".join(json_lines)) == SCALED


def test_scale_tells_what_the_others_gave_back(supervisor: Supervisor, capsys: Capture) -> None:
    answer = SCALED | {"replicas": 1, "workers": ["w1"], "receipt": RECEIPT}
    supervisor.say("POST /api/models/m/scale?wait=600.0", answer)
    assert main(["scale", "m", "1"]) == 0
    told = "m has 1 worker; m: freed 142 MB host memory in 0.03 s, verified\n"
    assert capsys.readouterr().out == told


def test_scale_of_a_model_that_is_not_loaded(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/scale?wait=600.0", SCALED | {"workers": []})
    assert main(["scale", "m", "2"]) == 0
    assert capsys.readouterr().out == "m is not loaded; it will have 2 workers\n"


def test_scale_that_takes_too_long(supervisor: Supervisor, capsys: Capture) -> None:
    answer = {"model": "m", "state": "ready", "status_url": "/api/models/m"}
    supervisor.say("POST /api/models/m/scale?wait=1.0", answer, 202)
    assert main(["scale", "m", "2", "--wait", "1s"]) == 7
    assert "goes on" in capsys.readouterr().err


def test_load_in_json(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/load?wait=600.0", LOADED)

    assert main(["load", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == LOADED


@pytest.mark.parametrize(
    ("status", "problem", "code", "said"),
    [
        (
            422,
            {
                "code": "load_failed",
                "detail": "m.keras: bad",
                "cause": "bad_model",
                "log": ["tail"],
            },
            6,
            "error: m.keras: bad\n  | tail\n",
        ),
        (507, {"code": "does_not_fit", "detail": "too big"}, 5, "error: too big\n"),
        (504, {"code": "timeout", "detail": "slow"}, 7, "error: slow\n"),
        (404, {"code": "unknown_model", "detail": "no m"}, 4, "error: no m\n"),
        (422, {"code": "invalid", "detail": "bad size"}, 2, "error: bad size\n"),
        (
            503,
            {"code": "loading", "detail": "later", "retry_after": 5},
            1,
            "error: later\ntry again in 5.00 s\n",
        ),
    ],
)
def test_a_load_that_fails(
    supervisor: Supervisor,
    capsys: Capture,
    status: int,
    problem: dict[str, Any],
    code: int,
    said: str,
) -> None:
    supervisor.say("POST /api/models/m/load?wait=600.0", problem, status)

    assert main(["load", "m"]) == code
    assert capsys.readouterr() == ("", said)


PLAN = {
    "model": "m",
    "fits": "after eviction",
    "device": "GPU-a",
    "charges": {"host": 142_000_000, "GPU-a": 2_000_000_000},
    "estimated": True,
    "victims": [{"worker": "w1", "model": "old", "reason": "idle for 9 s"}],
    "blockers": [],
    "reason": "",
    "seconds": 1.5,
}


def test_plan_says_what_would_go(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/models/m/plan", PLAN)

    assert main(["plan", "m"]) == 0
    assert capsys.readouterr().out == (
        "m fits once others have been unloaded\n"
        "  unloads old (w1): idle for 9 s\n"
        "  device: GPU-a\n"
        "  memory: 142 MB of host, 2.0 GB of GPU-a (estimated from the size of its files)\n"
        "  load time: 1.50 s, the last time\n"
    )
    assert main(["plan", "m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == PLAN


def test_a_plan_that_does_not_fit_has_the_exit_code_of_the_load(
    supervisor: Supervisor, capsys: Capture
) -> None:
    blockers = [
        {"worker": "w1", "model": "old", "reason": "is pinned", "passing": False},
        {"worker": "w2", "model": "new", "reason": "is being loaded", "passing": True},
    ]
    answer = PLAN | {
        "fits": "no",
        "device": None,
        "charges": {"host": 5},
        "estimated": False,
        "victims": [],
        "blockers": blockers,
        "reason": "everything that is loaded there has to stay",
        "seconds": None,
    }
    supervisor.say("GET /api/models/m/plan", answer)

    assert main(["plan", "m"]) == 5
    assert capsys.readouterr().out == (
        "m does not fit: everything that is loaded there has to stay\n"
        "  in the way: old (w1), which is pinned\n"
        "  waits for new (w2), which is being loaded\n"
        "  device: cpu\n"
        "  memory: 5 B of host (as measured or asked)\n"
    )


def test_unload_prints_the_receipt(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/unload", RECEIPT)

    assert main(["unload", "m", "--force", "--timeout", "5s"]) == 0
    assert capsys.readouterr().out == "m: freed 142 MB host memory in 0.03 s, verified\n"
    assert supervisor.sent() == {"force": True, "timeout": 5.0}


def test_unload_of_a_held_model_names_the_holders(supervisor: Supervisor, capsys: Capture) -> None:
    problem = {"detail": "held", "code": "held", "clients": ["john", "anna"]}
    supervisor.say("POST /api/models/m/unload", problem, 409)

    assert main(["unload", "m"]) == 1
    assert capsys.readouterr().err == "error: held\nheld by: john, anna\n"


def test_swap_and_release(supervisor: Supervisor, capsys: Capture) -> None:
    swap = {
        "client": "john",
        "model": "new",
        "version": "1",
        "worker": "w2",
        "previous": "m",
        "receipt": RECEIPT,
        "kept": None,
        "seconds": {"total": 0.2},
    }
    supervisor.say("PUT /api/clients/john/model?wait=600.0", swap)
    released = {"client": "john", "model": "new", "receipt": None, "kept": "it is pinned"}
    supervisor.say("DELETE /api/clients/john", released)

    assert main(["swap", "john", "new", "--private", "--lease-ttl", "1h"]) == 0
    assert supervisor.sent() == {"model": "new", "private": True, "ttl": 3600}
    assert main(["release", "john"]) == 0
    assert capsys.readouterr().out == (
        "john has new in 0.20 s: worker w2\n"
        "m: freed 142 MB host memory in 0.03 s, verified\n"
        "john released new\n"
        "new stays loaded: it is pinned\n"
    )


# Looking


def test_ps(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/workers", {"workers": [WORKER]})

    assert main(["ps"]) == 0
    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == [
        "MODEL",
        "REPLICA",
        "WORKER",
        "VERSION",
        "STATE",
        "PID",
        "DEVICE",
        "MEMORY",
        "GUARD",
        "CHARGED",
        "IN",
        "FLIGHT",
        "REQUESTS",
        "RESTARTS",
        "USED",
        "CLIENTS",
    ]
    assert row.split() == [
        "m",
        "2",
        "w1",
        "1",
        "ready",
        "77",
        "cpu",
        "48.0",
        "MB",
        "watcher",
        "~142",
        "MB,",
        "GPU",
        "~2.0",
        "GB",
        "2",
        "30",
        "0",
        "never",
        "john,",
        "anna",
    ]


def test_ps_in_json(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/workers", {"workers": [WORKER]})

    assert main(["ps", "--json"]) == 0
    (printed,) = json.loads(capsys.readouterr().out)
    assert {name: printed[name] for name in WORKER} == WORKER


def test_ps_in_json_with_nothing_loaded(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/workers", {"workers": []})

    assert main(["ps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_models_tells_of_failures_on_stderr(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/models", {"models": [MODEL]})

    assert main(["models"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split() == [
        "m",
        "failed",
        "0/3",
        "1,",
        "2",
        "tensorflow",
        "-",
        "yes",
        "refused",
        "ram",
        "/m.keras",
    ]
    assert err.splitlines() == [
        "m failed: no such layer (bad_model)",
        "m is not prepared: it draws numbers at random",
    ]


def test_prepare(supervisor: Supervisor, capsys: Capture) -> None:
    told = {"model": "m", "state": "ready", "form": "0123-echo-1", "bytes": 2_000_000}
    supervisor.say("POST /api/models/m/prepare?wait=60.0", told)

    assert main(["prepare", "m", "/elsewhere/m.keras", "--wait", "1m"]) == 0
    assert capsys.readouterr().out == "m is prepared: 2.0 MB as 0123-echo-1\n"
    assert supervisor.sent() == {"source": "/elsewhere/m.keras"}
    assert main(["prepare", "m", "--wait", "1m", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


def test_prepare_that_goes_on(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("POST /api/models/m/prepare?wait=1.0", {"model": "m", "state": "waiting"}, 202)

    assert main(["prepare", "m", "--wait", "1s"]) == 7
    assert "not prepared within 1 s; the work goes on" in capsys.readouterr().err


def test_cache_ls(supervisor: Supervisor, capsys: Capture) -> None:
    refusal = FORM | {"name": "4567", "bytes": 0, "refused": "it draws numbers at random"}
    supervisor.say("GET /api/cache", {"forms": [FORM, refusal], "bytes": 2_000_000})

    assert main(["cache", "ls"]) == 0
    out, err = capsys.readouterr()
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["NAME", "MODEL", "SIZE"],
        ["0123-echo-1", "m", "2.0"],
        ["4567", "m", "-"],
    ]
    assert err == "m has no prepared form: it draws numbers at random\n"
    assert main(["cache", "ls", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [FORM, refusal]


def test_cache_rm(supervisor: Supervisor, capsys: Capture) -> None:
    removed = {"removed": [FORM], "bytes": 2_000_000}
    supervisor.say("DELETE /api/cache/0123-echo-1", removed)
    supervisor.say("DELETE /api/cache", removed)

    for arguments in (["0123-echo-1"], ["--all"]):
        assert main(["cache", "rm", *arguments]) == 0
        assert capsys.readouterr().out == "removed 1, 2.0 MB\n"


@pytest.mark.parametrize("arguments", [[], ["0123-echo-1", "--all"]])
def test_cache_rm_wants_names_or_all(arguments: list[str], capsys: Capture) -> None:
    assert main(["cache", "rm", *arguments]) == 2
    assert "or --all" in capsys.readouterr().err


def test_clients(supervisor: Supervisor, capsys: Capture) -> None:
    lease = {
        "id": "john",
        "model": "m",
        "version": "1",
        "worker": None,
        "private": False,
        "since": 1.0,
        "expires_in_seconds": 125.0,
        "requests": 3,
    }
    supervisor.say("GET /api/clients", {"clients": [lease]})

    assert main(["clients"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == [
        "john",
        "m",
        "1",
        "-",
        "-",
        "3",
        "2",
        "min",
        "5",
        "s",
    ]
    assert main(["clients", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [lease]


def test_status(supervisor: Supervisor, capsys: Capture) -> None:
    status = {
        "version": "0.1.0",
        "pid": 5,
        "url": supervisor.url,
        "state_dir": "/state",
        "started_at": 1.0,
        "uptime_seconds": 61.0,
        "state": "running",
        "models": {"known": 3, "loaded": 1},
        "workers": 1,
        "clients": 0,
        "forkservers": [{"runtime": "echo", "pid": 6, "state": "ready"}],
        "grpc": "127.0.0.1:8500",
    }
    host = {"total_bytes": 10**10, "available_bytes": 4 * 10**9, "workers_bytes": 48_000_000}
    supervisor.say("GET /api/status", status)
    supervisor.say("GET /api/memory", {"host": host, "gpus": [], "workers": []})

    assert main(["status"]) == 0
    out = capsys.readouterr().out
    assert "1 loaded of 3" in out
    assert "ready, pid 6" in out
    assert "127.0.0.1:8500" in out
    assert "4.0 GB free of 10.0 GB" in out
    assert main(["status", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["status"] == status
    assert printed["memory"]["host"]["workers_bytes"] == 48_000_000


def test_logs(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/models/m/logs?tail=2", b"one\ntwo\n")

    assert main(["logs", "m", "-n", "2"]) == 0
    assert capsys.readouterr().out == "one\ntwo\n"
    assert main(["logs", "other"]) == 4


def test_logs_of_a_silent_model(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/models/m/logs?tail=100", b"")

    assert main(["logs", "m"]) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "m has written nothing so far\n")


EVENT = {
    "id": 8,
    "at": 1.0,
    "kind": "eviction",
    "message": "evicting",
    "facts": {"model": "m", "reason": "room for n", "seconds": 0.12345},
}


def test_events(supervisor: Supervisor, capsys: Capture) -> None:
    supervisor.say("GET /api/events?follow=0", {"events": [EVENT], "last_id": 8})

    assert main(["events"]) == 0
    at, line = capsys.readouterr().out.split(" ", 1)
    assert at.count(":") == 2
    assert line == 'evicting  model=m reason="room for n" seconds=0.123\n'


def test_followed_events_go_on_from_the_last_one(supervisor: Supervisor, capsys: Capture) -> None:
    later = EVENT | {"id": 9, "message": "worker gone"}
    old = "event: state\nid: 8\ndata: {}\n\n: nothing new\n\n"
    stream = f"{old}id: 9\ndata: {json.dumps(later)}\n\n"
    supervisor.say("GET /api/events?follow=0", {"events": [EVENT], "last_id": 8})
    supervisor.say("GET /api/events", stream.encode())

    assert main(["events", "-f", "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [EVENT, later]


# Predictions


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("[[1, 2]]", {"instances": [[1, 2]]}),
        ('{"instances": [1]}', {"instances": [1]}),
        ('{"inputs": {"x": [1]}}', {"inputs": {"x": [1]}}),
    ],
)
def test_predict_takes_json(
    supervisor: Supervisor, capsys: Capture, given: str, sent: object
) -> None:
    supervisor.say("POST /v1/models/m:predict", {"predictions": [[0.5]]})

    assert main(["predict", "m", given]) == 0
    assert supervisor.sent() == sent
    assert json.loads(capsys.readouterr().out) == {"predictions": [[0.5]]}


def test_predict_names_the_signature(supervisor: Supervisor) -> None:
    supervisor.say("POST /v1/models/m:predict", {"predictions": []})

    assert main(["predict", "m", "[1]", "--signature", "encode"]) == 0
    assert supervisor.sent() == {"instances": [1], "signature_name": "encode"}


def test_predict_reads_files_and_stdin(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.say("POST /clients/john/predict", {"predictions": []})
    (tmp_path / "x.json").write_text("[1]")
    stdin = io.TextIOWrapper(io.BytesIO(b"[2]"))
    monkeypatch.setattr(sys, "stdin", stdin)

    assert main(["predict", "--client", "john", f"@{tmp_path / 'x.json'}"]) == 0
    assert supervisor.sent() == {"instances": [1]}
    assert main(["predict", "--client", "john", "@-"]) == 0
    assert supervisor.sent() == {"instances": [2]}


def _say_outputs(supervisor: Supervisor, outputs: dict[str, Any]) -> None:
    body, length = tensors.encode(outputs, None)
    text = json.dumps({"outputs": json.loads(body[:length])["inputs"]}).encode()
    described = [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    supervisor.say("GET /v2/models/m", {"name": "m", "inputs": described})
    headers = {tensors.HEADER_LENGTH: str(len(text))}
    supervisor.say("POST /v2/models/m/infer", text + body[length:], headers=headers)


def test_predict_sends_an_npy_file_in_binary(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5]))
    given = f"@{tmp_path / 'x.npy'}"
    _say_outputs(supervisor, {"y": np.array([[3.0]], np.float32)})

    assert main(["predict", "m", given]) == 0
    assert json.loads(capsys.readouterr().out) == [[3.0]]

    output = tmp_path / "y.npy"
    assert main(["predict", "m", given, "--output", str(output)]) == 0
    assert capsys.readouterr().out == ""
    assert np.load(output).tolist() == [[3.0]]


def test_predict_with_several_outputs(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5]))
    given = f"@{tmp_path / 'x.npy'}"
    _say_outputs(supervisor, {"n": np.array([1]), "s": np.array([b"a", b"\xff"])})

    assert main(["predict", "m", given]) == 0
    assert json.loads(capsys.readouterr().out) == {"n": [1], "s": ["a", {"b64": "/w=="}]}

    output = tmp_path / "y.npz"
    assert main(["predict", "m", given, "--output", str(output)]) == 0
    with np.load(output) as stored:
        assert stored["s"].tolist() == [b"a", b"\xff"]
    assert main(["predict", "m", given, "--output", str(tmp_path / "y.npy")]) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["m", "{"], "neither JSON nor a .npy or .npz file"),
        (["m", "3"], "must be a list"),
        (["m", '{"x": 1}'], 'an object with "instances"'),
        (["m", "@/nowhere/x.npy"], "Cannot read '/nowhere/x.npy': No such file"),
        (["m"], "Give NAME and INPUT"),
        ([], "Give NAME and INPUT"),
        (["m", "[1]", "--client", "john"], "With --client give INPUT alone"),
        (["m", "[1]", "--output", "y.npy"], "--output goes with a .npy or .npz input"),
    ],
)
def test_a_bad_input_is_not_sent(
    supervisor: Supervisor, capsys: Capture, arguments: list[str], said: str
) -> None:
    assert main(["predict", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert supervisor.seen == []


def test_predict_sends_the_arrays_of_an_npz_file_by_name(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", left=np.array([1.5]), right=np.array([2.5]))
    described = [{"name": name, "datatype": "FP32", "shape": [-1]} for name in ("left", "right")]
    _say_outputs(supervisor, {"y": np.array([3.0], np.float32)})
    supervisor.say("GET /v2/models/m", {"name": "m", "inputs": described})

    assert main(["predict", "m", f"@{tmp_path / 'x.npz'}"]) == 0
    assert json.loads(capsys.readouterr().out) == [3.0]
    request, body = supervisor.seen[-1]
    assert request == "POST /v2/models/m/infer"
    assert b'"left"' in body
    assert b'"right"' in body
    assert body.endswith(np.array([1.5, 2.5]).tobytes())


def test_a_float32_is_printed_with_its_own_digits(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.array([1.5]))
    _say_outputs(supervisor, {"y": np.array([0.1, 1e-30], np.float32)})

    assert main(["predict", "m", f"@{tmp_path / 'x.npy'}"]) == 0
    assert capsys.readouterr().out == "[0.1, 1e-30]\n"


def test_an_npz_file_that_is_cut_off(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04cut off")

    assert main(["predict", "m", f"@{tmp_path / 'x.npz'}"]) == 2
    assert "a .npz file that cannot be read" in capsys.readouterr().err


def test_an_npy_file_that_is_cut_off(
    supervisor: Supervisor, capsys: Capture, tmp_path: Path
) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")

    assert main(["predict", "m", f"@{tmp_path / 'x.npy'}"]) == 2
    assert "a .npy file that cannot be read" in capsys.readouterr().err


# The command itself


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["load", "../m"], "cannot be the name of a model"),
        (["--url", "nonsense", "ps"], "not the URL of a supervisor"),
        (["load", "m", "--ttl", "soon"], "'soon' is not a duration"),
        (["load", "m", "--gpu-memory", "1GB", "--gpu-memory-fraction", "0.5"], "not both"),
        (["load", "m", "--gpu-memory-fraction", "1.5"], "0<x<=1"),
        (["nonsense"], "No such command"),
        (["start", "--port", "many"], "port (flag): expected a whole number"),
        (["start", "--config", "/nowhere.toml"], "cannot be read"),
        (["config", "show", "--config", "/nowhere.toml"], "cannot be read"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
    ],
)
def test_wrong_usage_is_2(capsys: Capture, arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_nobody_there_is_3(capsys: Capture) -> None:
    assert main(["--url", "http://127.0.0.1:1", "stop"]) == 3
    assert "no supervisor answers at http://127.0.0.1:1" in capsys.readouterr().err


def test_config_show_tells_where_a_value_came_from(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text('log_level = "debug"\n')
    monkeypatch.setenv("MODELSUP_PORT", "9000")

    assert main(["config", "show", "--json", "--config", str(tmp_path / "c.toml")]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["port"] == {"value": 9000, "source": "environment MODELSUP_PORT"}
    assert shown["log_level"]["value"] == "debug"
    assert shown["host"]["source"] == "default"


def test_every_setting_is_a_flag_of_start(capsys: Capture) -> None:
    from modelsup.supervisor.settings import FIELDS

    assert main(["start", "--help"]) == 0
    words = capsys.readouterr().out.split()
    assert {field.flag for field in FIELDS} <= set(words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(capsys: Capture, shell: str) -> None:
    assert main(["completion", shell]) == 0
    assert "_MODELSUP_COMPLETE" in capsys.readouterr().out


def _complete(words: str, position: int) -> list[str]:
    result = subprocess.run(
        [sys.executable, "-m", "modelsup.cli"],
        env={
            **os.environ,
            "_MODELSUP_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return [line.partition(",")[2] for line in result.stdout.split()]


def test_names_are_completed_by_asking_the_supervisor(supervisor: Supervisor) -> None:
    supervisor.say("GET /api/models", {"models": [MODEL, {**MODEL, "name": "other"}]})

    assert _complete("modelsup unload o", 2) == ["other"]
    supervisor.answers.clear()
    assert _complete("modelsup unload o", 2) == []


def test_help_imports_nothing_slow() -> None:
    """The help, and completion of commands, must feel immediate."""
    code = (
        "import sys; from modelsup.cli.main import main; main(['--help']); "
        "print(sorted({'numpy', 'requests', 'rich', 'psutil'} & sys.modules.keys()))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert result.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_is_no_error(supervisor: Supervisor) -> None:
    supervisor.say("GET /api/models/m/logs?tail=100", b"line\n" * 100_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "modelsup.cli", "logs", "m"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    with process:
        assert process.stdout.readline() == b"line\n"
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0


def test_an_interrupt_is_130_without_a_traceback(supervisor: Supervisor) -> None:
    supervisor.gate.clear()
    process = subprocess.Popen(
        [sys.executable, "-m", "modelsup.cli", "ps"], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    with process:
        assert supervisor.arrived.wait(60)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read().strip() == "interrupted"
    supervisor.gate.set()
    assert process.returncode == 130


def test_version(capsys: Capture) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("modelsup ")
