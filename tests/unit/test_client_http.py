"""The client library against a small real HTTP server that gives canned answers."""

from __future__ import annotations

import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from modelsup.client import (
    Client,
    Held,
    InvalidRequest,
    ModelsupError,
    TimedOut,
    UnknownClient,
    UnknownModel,
    Unreachable,
    tensors,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECEIPT = {
    "model": "old",
    "worker": "w1",
    "outcome": "drained",
    "in_flight_completed": 0,
    "in_flight_aborted": 0,
    "freed": {"host_bytes": 10, "gpu_bytes": {}},
    "verified": True,
    "seconds": {"drain": 0.0, "exit": 0.0, "memory_back": 0.0, "total": 0.03},
}
LOADED = {
    "model": "m",
    "version": "1",
    "worker": "w1",
    "state": "ready",
    "already_loaded": False,
    "seconds": {"total": 0.2},
    "memory": {"host_bytes": 5, "gpu_bytes": {}},
    "warnings": [],
}
SWAP = {
    "client": "john",
    "model": "new",
    "version": "1",
    "worker": "w2",
    "previous": "old",
    "receipt": RECEIPT,
    "kept": None,
    "seconds": {"load": 0.1, "total": 0.2},
}


class Quiet(ThreadingHTTPServer):
    """Does not print that a client has gone away: some tests have it do so."""

    def handle_error(self, request: object, client_address: object) -> None:
        pass


class Server:
    """Answers each "METHOD path" with what the test says; `seen` keeps the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes, dict[str, str]]] = {}
        self.handlers: dict[str, Callable[[BaseHTTPRequestHandler, bytes], None]] = {}
        self.seen: list[tuple[str, bytes, dict[str, str]]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                request = f"{self.command} {self.path}"
                server.seen.append((request, body, dict(self.headers)))
                if request in server.handlers:
                    server.handlers[request](self, body)
                    return
                missing = (404, b'{"detail": "no", "code": "unknown_model"}', {})
                status, answer, headers = server.answers.get(request, missing)
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

    def say(self, request: str, answer: object, status: int = 200, **headers: str) -> None:
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[request] = (status, body, named)

    def requests(self) -> list[str]:
        return [request for request, _, _ in self.seen]

    def sent(self) -> Any:
        """The JSON body of the last request."""
        return json.loads(self.seen[-1][1])

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url, timeout=10) as client:
        yield client


def v2_answer(outputs: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    body, length = tensors.encode(outputs, None)
    header = json.loads(body[:length])
    text = json.dumps({"model_name": "m", "outputs": header["inputs"]}).encode()
    return text + body[length:], {"Inference_Header_Content_Length": str(len(text))}


def metadata(*inputs: str, datatype: str = "FP32") -> dict[str, Any]:
    tensors_of = [{"name": name, "datatype": datatype, "shape": [-1, 2]} for name in inputs]
    return {"name": "m", "versions": ["1"], "platform": "echo", "inputs": tensors_of}


def sent_tensors(server: Server) -> dict[str, Any]:
    _, body, headers = server.seen[-1]
    length = int(headers["Inference-Header-Content-Length"])
    header = json.loads(body[:length])
    return tensors.decode_outputs({"outputs": header["inputs"]}, memoryview(body)[length:])


# Acts


def test_load_sends_only_what_was_given(server: Server, client: Client) -> None:
    server.say("POST /api/models/m/load?wait=600.0", LOADED)

    loaded = client.load("m", "/models/m.keras", gpu_memory="4GB", pin=True)

    assert (loaded.worker, loaded.memory and loaded.memory.host_bytes) == ("w1", 5)
    assert server.sent() == {
        "source": "/models/m.keras",
        "options": {"gpu_memory": "4GB", "pin": True},
    }


def test_a_relative_path_that_exists_here_is_sent_whole(
    server: Server, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.say("POST /api/models/m/load?wait=600.0", LOADED)
    (tmp_path / "m.keras").touch()
    monkeypatch.chdir(tmp_path)

    client.load("m", "m.keras")
    assert server.sent() == {"source": str(tmp_path / "m.keras")}

    client.load("m", "only/there.keras")
    assert server.sent() == {"source": "only/there.keras"}


def test_a_load_that_is_not_waited_for_tells_its_state(server: Server, client: Client) -> None:
    pending = {"model": "m", "state": "loading", "status_url": "/api/models/m"}
    server.say("POST /api/models/m/load?wait=0", pending, 202)

    loaded = client.load("m", wait=0)

    assert (loaded.state, loaded.worker) == ("loading", None)


def test_a_load_that_outlasts_its_wait_is_a_time_out(server: Server, client: Client) -> None:
    pending = {"model": "m", "state": "loading", "status_url": "/api/models/m"}
    server.say("POST /api/models/m/load?wait=1.5", pending, 202)

    with pytest.raises(TimedOut, match=r"not ready within 1\.5 s; its load goes on"):
        client.load("m", wait=1.5)


def test_unload_returns_the_receipt(server: Server, client: Client) -> None:
    server.say("POST /api/models/old/unload", RECEIPT)

    assert client.unload("old", timeout=3.0).freed.host_bytes == 10
    assert server.sent() == {"force": False, "timeout": 3.0}


def test_held_says_by_whom(server: Server, client: Client) -> None:
    problem = {"detail": "held", "code": "held", "clients": ["john"]}
    server.say("POST /api/models/old/unload", problem, 409)

    with pytest.raises(Held) as caught:
        client.unload("old")
    assert caught.value.clients == ("john",)


@pytest.mark.parametrize("name", ["", "../x", "a/b", "a b", "-x", "a" * 129, "x\n"])
def test_a_name_that_cannot_be_one_is_not_sent(server: Server, client: Client, name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be the name of a model"):
        client.unload(name)
    assert server.seen == []


# Sessions


def test_a_session_swaps_and_releases(server: Server, client: Client) -> None:
    server.say("PUT /api/clients/john/model?wait=600.0", SWAP)
    server.say("DELETE /api/clients/john", {"client": "john", "model": "new"})

    with client.session("john", lease_ttl=60) as john:
        receipt = john.swap("new", private=True)
        assert server.sent() == {"model": "new", "private": True, "ttl": 60}
        assert john.model == "new"

    assert receipt is not None
    assert receipt.model == "old"
    assert server.requests()[-1] == "DELETE /api/clients/john"


def test_a_session_whose_lease_ran_out_ends_quietly(server: Server, client: Client) -> None:
    problem = {"detail": "gone", "code": "unknown_client"}
    server.say("DELETE /api/clients/john", problem, 404)

    with client.session("john"):
        pass

    assert server.requests() == ["DELETE /api/clients/john"]
    with pytest.raises(UnknownClient):
        client.session("john").release()


def test_a_failed_release_does_not_hide_the_blocks_own_error(
    server: Server, client: Client
) -> None:
    server.say("DELETE /api/clients/john", {"detail": "no", "code": "internal"}, 500)

    with pytest.raises(KeyError, match="mine"), client.session("john"):
        raise KeyError("mine")
    with pytest.raises(ModelsupError, match="no"), client.session("john"):
        pass


def test_a_session_predicts_on_the_current_model(server: Server, client: Client) -> None:
    server.say("GET /api/clients/john", {"id": "john", "model": "m"})
    server.say("GET /v2/models/m", metadata("x"))
    body, headers = v2_answer({"y": np.array([3.0])})
    server.say("POST /clients/john/infer", body, **headers)

    assert client.session("john").predict([[1.0, 2.0]]).tolist() == [3.0]


# Predictions


def test_the_input_is_asked_for_once(server: Server, client: Client) -> None:
    server.say("GET /v2/models/m", metadata("x"))
    body, headers = v2_answer({"y": np.array([[3.0]], np.float32)})
    server.say("POST /v2/models/m/infer", body, X_Modelsup_Worker="w1", **headers)

    for _ in range(3):
        y = client.predict("m", [[1.0, 2.0]])
        assert isinstance(y, np.ndarray)
        assert y.tolist() == [[3.0]]
    assert sent_tensors(server)["x"].dtype == np.float32
    assert server.requests().count("GET /v2/models/m") == 1


def test_another_worker_makes_it_ask_again(server: Server, client: Client) -> None:
    body, headers = v2_answer({"y": np.zeros(1)})
    server.say("GET /v2/models/m", metadata("x"))
    server.say("POST /v2/models/m/infer", body, X_Modelsup_Worker="w1", **headers)
    client.predict("m", [[1.0, 2.0]])
    server.say("POST /v2/models/m/infer", body, X_Modelsup_Worker="w2", **headers)
    client.predict("m", [[1.0, 2.0]])
    server.say("GET /v2/models/m", metadata("z"))
    client.predict("m", [[1.0, 2.0]])

    assert list(sent_tensors(server)) == ["z"]


def test_a_replaced_model_is_asked_for_its_new_input(server: Server, client: Client) -> None:
    body, headers = v2_answer({"y": np.zeros(1)})
    server.say("GET /v2/models/m", metadata("x"))
    server.say("POST /v2/models/m/infer", body, **headers)
    client.predict("m", [[1.0, 2.0]])
    refused = json.dumps({"error": "unknown input 'x'"}).encode()

    def replaced(handler: BaseHTTPRequestHandler, request: bytes) -> None:
        good = b'"name": "z"' in request
        handler.send_response(200 if good else 400)
        answer = body if good else refused
        if good:
            handler.send_header(
                "Inference-Header-Content-Length", headers["Inference_Header_Content_Length"]
            )
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    server.say("GET /v2/models/m", metadata("z"))
    server.handlers["POST /v2/models/m/infer"] = replaced

    assert np.asarray(client.predict("m", [[1.0, 2.0]])).tolist() == [0.0]


def test_a_refusal_is_not_repeated_for_the_same_input(server: Server, client: Client) -> None:
    server.say("GET /v2/models/m", metadata("x"))
    server.say("POST /v2/models/m/infer", {"error": "wrong shape"}, 400)

    with pytest.raises(InvalidRequest, match="wrong shape"):
        client.predict("m", [1.0])
    assert server.requests().count("POST /v2/models/m/infer") == 1


def test_several_inputs_and_outputs_go_by_name(server: Server, client: Client) -> None:
    body, headers = v2_answer({"y": np.zeros(2), "z": np.array(["s"])})
    server.say("POST /v2/models/m/infer", body, **headers)

    outputs = client.predict("m", {"a": np.ones(2, np.int32), "b": [True]})

    assert isinstance(outputs, dict)
    assert outputs["z"].tolist() == [b"s"]
    assert {n: a.dtype.name for n, a in sent_tensors(server).items()} == {"a": "int32", "b": "bool"}
    assert server.requests() == ["POST /v2/models/m/infer"]


def test_a_bare_array_for_several_inputs_is_refused(server: Server, client: Client) -> None:
    server.say("GET /v2/models/m", metadata("a", "b"))

    with pytest.raises(InvalidRequest, match=r"has 2 inputs \(a, b\); give arrays by name"):
        client.predict("m", [1.0])


def test_a_named_signature_has_its_own_input(server: Server, client: Client) -> None:
    tensor = {"name": "s", "dtype": "string", "shape": [None]}
    signature = {"name": "encode", "inputs": [tensor], "outputs": []}
    server.say("GET /api/models/m", {"name": "m", "state": "ready", "signatures": [signature]})
    body, headers = v2_answer({"y": np.zeros(1)})
    server.say("POST /v2/models/m/infer", body, **headers)

    client.predict("m", ["a"], "encode")
    assert sent_tensors(server)["s"].tolist() == [b"a"]
    with pytest.raises(InvalidRequest, match="no signature 'decode': it has encode"):
        client.predict("m", ["a"], "decode")


def test_a_v1_body_is_sent_as_it_is(server: Server, client: Client) -> None:
    server.say("POST /v1/models/m:predict", {"predictions": [1]})

    assert client.predict_json("m", b'{"instances":  [1]}') == {"predictions": [1]}
    assert server.seen[-1][1] == b'{"instances":  [1]}'


def test_threads_share_a_client(server: Server, client: Client) -> None:
    def double(handler: BaseHTTPRequestHandler, request: bytes) -> None:
        answer = json.dumps({"predictions": json.loads(request)["instances"] * 2}).encode()
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(answer)))
        handler.end_headers()
        handler.wfile.write(answer)

    server.handlers["POST /v1/models/m:predict"] = double

    def ask(i: int) -> bool:
        answer = client.predict_json("m", {"instances": [i]})
        return bool(answer == {"predictions": [i, i]})

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(200)))


# The exchange itself


def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        with Client(url) as client, pytest.raises(Unreachable, match="modelsup start") as caught:
            client.status()
    assert caught.value.code == "unreachable"


def test_an_answer_that_takes_too_long(server: Server) -> None:
    gate = threading.Event()
    server.handlers["GET /api/status"] = lambda *_: (gate.wait(30), None)[1]

    with Client(server.url, timeout=0.05) as client:
        with pytest.raises(TimedOut, match=r"within 0\.05 s"):
            client.status()
        gate.set()


def test_a_prediction_tells_how_long_it_may_take(server: Server, client: Client) -> None:
    server.say("POST /v1/models/m:predict", {"predictions": [1]})
    client.predict_json("m", {"instances": [1]}, timeout=2)
    assert server.seen[-1][2]["X-Request-Timeout"] == "2.000"
    client.predict_json("m", {"instances": [1]})
    assert "X-Request-Timeout" not in server.seen[-1][2]


@pytest.mark.parametrize("url", ["localhost:8501", "ftp://h", "http://", "nonsense"])
def test_a_url_that_is_none(url: str) -> None:
    with pytest.raises(InvalidRequest, match="not the URL of a supervisor"):
        Client(url)


def test_the_environment_names_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELSUP_URL", "http://elsewhere:1/")

    assert Client().url == "http://elsewhere:1"
    assert Client("http://h:2").url == "http://h:2"


def test_a_proxy_is_not_asked_for_this_machine(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    server.say("GET /api/models", {"models": []})

    with Client(server.url) as client:
        assert client.models() == []


def test_a_page_of_another_server_is_no_answer(server: Server, client: Client) -> None:
    server.say("GET /api/status", b"<html>")

    with pytest.raises(ModelsupError, match="did not answer with JSON"):
        client.status()


def test_a_prediction_outlives_a_connection_that_was_closed(server: Server, client: Client) -> None:
    """A kept connection may be closed just when the next request goes out on it."""
    tries = []

    def close_first(handler: BaseHTTPRequestHandler, request: bytes) -> None:
        tries.append(request)
        if len(tries) == 1:
            handler.close_connection = True
            handler.connection.shutdown(socket.SHUT_RDWR)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", "2")
        handler.end_headers()
        handler.wfile.write(b"{}")

    server.handlers["POST /v1/models/m:predict"] = close_first
    server.handlers["POST /api/stop"] = close_first

    assert client.predict_json("m", b"{}") == {}
    tries.clear()
    with pytest.raises(Unreachable):  # what changes something is never sent twice
        client.stop()
    assert len(tries) == 1


def test_a_forked_child_opens_connections_of_its_own(server: Server, client: Client) -> None:
    server.say("GET /api/models", {"models": []})
    client.models()
    before = client._transport._session

    child = os.fork()
    if child == 0:
        os._exit(0 if client._transport._pool() is not before else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# Logs


def test_logs_arrive_line_by_line(server: Server, client: Client) -> None:
    gate = threading.Event()

    def stream(handler: BaseHTTPRequestHandler, request: bytes) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in (b"one\nt", "wö".encode()[:2], "wö".encode()[2:] + b"\n"):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        gate.wait(30)
        handler.wfile.write(b"3\r\nend\r\n0\r\n\r\n")

    server.handlers["GET /api/models/m/logs?tail=5&follow=1"] = stream
    lines = client.logs("m", tail=5, follow=True)

    assert next(lines) == "one"
    assert next(lines) == "twö"
    gate.set()
    assert list(lines) == ["end"]


def test_logs_of_an_unknown_model(client: Client) -> None:
    with pytest.raises(UnknownModel):
        next(client.logs("m"))
