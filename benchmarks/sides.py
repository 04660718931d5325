"""The three ways to serve many models that are measured against each other.

All speak the same two requests; `load` returns when the model can be asked.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import requests

from examples.local_supervisor import LocalSupervisor, local_supervisor

from .processes import BenchmarkError, Server, cpu_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from .workload import Workload

TIMEOUT_SECONDS = 300
CLIENT = "benchmark"  # the modelsup client whose current model is swapped


class Side(Protocol):
    """One way to serve models."""

    name: str

    def load(self, name: str, workload: Workload) -> None:
        """Load the workload's model under `name`."""

    def unload(self, name: str) -> None:
        """Unload; returns when the side calls it done."""

    def swap(self, old: str | None, new: str, workload: Workload) -> None:
        """Unload `old`, where there is one, and load the workload's model under `new`."""

    def infer(self, name: str, workload: Workload) -> bytes:
        """Send the workload's V2 request to the model `name`; return the answer's body."""

    def pids(self) -> list[int]:
        """Return the roots of the process trees that belong to this side."""

    def cpu_seconds(self) -> float:
        """Return all CPU seconds so far, ended processes included."""

    def stop(self) -> None:
        """End every process of this side."""


class Cold:
    """A new process per model: import TensorFlow, load, serve."""

    name = "cold"

    def __init__(self, folder: Path) -> None:
        self._log = folder / "cold.log"
        self._servers: dict[str, tuple[Server, str]] = {}
        self._ended_cpu = 0.0  # seconds
        self._http = requests.Session()

    def load(self, name: str, workload: Workload) -> None:
        server = Server("benchmarks.baselines.cold_app", str(workload.file), log=self._log)
        try:
            self._servers[name] = (server, server.wait_for_url())
        except BaseException:
            server.stop()
            raise

    def unload(self, name: str) -> None:
        server, _ = self._servers.pop(name)
        self._ended_cpu += server.stop()

    def swap(self, old: str | None, new: str, workload: Workload) -> None:
        if old is not None:
            self.unload(old)
        self.load(new, workload)

    def infer(self, name: str, workload: Workload) -> bytes:
        return _post(self._http, f"{self._servers[name][1]}/v2/models/{name}/infer", workload)

    def pids(self) -> list[int]:
        return [server.pid for server, _ in self._servers.values()]

    def cpu_seconds(self) -> float:
        return self._ended_cpu + cpu_seconds(self.pids())

    def stop(self) -> None:
        for name in list(self._servers):
            self.unload(name)
        self._http.close()


class InProcess:
    """One process for all models: load_model, del, clear_session, gc.collect."""

    name = "in-process"

    def __init__(self, folder: Path) -> None:
        self._server = Server("benchmarks.baselines.in_process_app", log=folder / "in-process.log")
        self._http = requests.Session()
        try:
            self._url = self._server.wait_for_url()
        except BaseException:
            self.stop()
            raise

    def load(self, name: str, workload: Workload) -> None:
        answer = self._http.put(
            f"{self._url}/models/{name}",
            json={"file": str(workload.file)},
            timeout=TIMEOUT_SECONDS,
        )
        _content(answer)

    def unload(self, name: str) -> None:
        _content(self._http.delete(f"{self._url}/models/{name}", timeout=TIMEOUT_SECONDS))

    def swap(self, old: str | None, new: str, workload: Workload) -> None:
        if old is not None:
            self.unload(old)
        self.load(new, workload)

    def infer(self, name: str, workload: Workload) -> bytes:
        return _post(self._http, f"{self._url}/v2/models/{name}/infer", workload)

    def pids(self) -> list[int]:
        return [self._server.pid]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def stop(self) -> None:
        self._server.stop()
        self._http.close()

    @property
    def url(self) -> str:
        """Where this side serves."""
        return self._url


class Modelsup:
    """A supervisor whose forkserver has imported TensorFlow."""

    name = "modelsup"

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._supervisor: LocalSupervisor = self._stack.enter_context(
            local_supervisor("--preload", "tensorflow")
        )
        self._http = self._stack.enter_context(requests.Session())
        self._current: str | None = None  # the model that the client holds

    def load(self, name: str, workload: Workload) -> None:
        self._call("POST", f"/api/models/{name}/load", {"source": str(workload.file)})

    def unload(self, name: str) -> None:
        if name == self._current:
            self._call("DELETE", f"/api/clients/{CLIENT}")
            self._current = None
        else:
            self._call("POST", f"/api/models/{name}/unload", {})

    def swap(self, old: str | None, new: str, workload: Workload) -> None:
        if self._current != old:
            raise BenchmarkError(f"the client holds {self._current}, not {old}")
        wanted = {"model": new, "source": str(workload.file)}
        done = json.loads(self._call("PUT", f"/api/clients/{CLIENT}/model", wanted))
        self._current = new
        if done["kept"]:
            raise BenchmarkError(f"modelsup did not unload {old}: {done['kept']}")

    def infer(self, name: str, workload: Workload) -> bytes:
        held = name == self._current
        path = f"/clients/{CLIENT}/infer" if held else f"/v2/models/{name}/infer"
        return _post(self._http, self.url + path, workload)

    def pids(self) -> list[int]:
        return [self._supervisor.pid]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def stop(self) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """Where the supervisor serves."""
        return self._supervisor.url

    def _call(self, method: str, path: str, body: dict[str, str] | None = None) -> bytes:
        answer = self._http.request(method, self.url + path, json=body, timeout=TIMEOUT_SECONDS)
        return _content(answer)


def _post(http: requests.Session, url: str, workload: Workload) -> bytes:
    return _content(
        http.post(url, data=workload.v2_body, headers=workload.v2_headers, timeout=TIMEOUT_SECONDS)
    )


def _content(answer: requests.Response) -> bytes:
    """Return the body. Raises BenchmarkError on any answer but a finished success."""
    if answer.status_code not in (200, 201, 204):
        request = answer.request
        raise BenchmarkError(
            f"{request.method} {request.url} gave {answer.status_code}: {answer.text[:500]}"
        )
    return answer.content
