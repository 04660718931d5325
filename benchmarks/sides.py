"""The ways to serve many models that are measured against each other.

All speak the same two requests; `load` returns when the model can be asked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import requests

from examples.local_supervisor import LocalSupervisor, local_supervisor

from .processes import ROOT, BenchmarkError, Server, cpu_seconds
from .reference import reference_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from .workload import Workload

TIMEOUT_SECONDS = 300
WITH_TENSORFLOW = ("--preload", "tensorflow")  # options of a supervisor
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
    unprepared = "unprepared"  # the same, which loads models from their files

    def __init__(self, cache: Path, *, prepared: bool = True) -> None:
        """`cache` is where prepared models go; see `prepare`."""
        self.name = Modelsup.name if prepared else Modelsup.unprepared
        self._cache = cache
        self._stack = ExitStack()
        options = ("--cache-dir", str(cache)) if prepared else ("--prepare", "off")
        self._supervisor: LocalSupervisor = self._stack.enter_context(
            local_supervisor(*WITH_TENSORFLOW, *options)
        )
        self._http = self._stack.enter_context(requests.Session())
        self._current: str | None = None  # the model that the client holds

    def prepare(self, workload: Workload) -> Path:
        """Prepare the workload's model; return the folder of what was made."""
        wanted = {"source": str(workload.file)}
        path = f"/api/models/{workload.model}/prepare"
        made = json.loads(self._call("POST", path, wanted))
        return self._cache / "forms" / str(made["form"])

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


class BareFork:
    """A program that forks and runs a prepared model, with nothing around it."""

    name = "bare"

    def __init__(self, forms: Mapping[str, Path], folder: Path) -> None:
        """`forms`: the prepared model of each workload by its name."""
        self._forms = forms
        self._answer = b""
        with (folder / "bare.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.baselines.bare_fork"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
            )
        self._read()

    def load(self, name: str, workload: Workload) -> None:
        self.swap(None, name, workload)

    def unload(self, name: str) -> None:
        """Nothing: the next swap ends the process."""

    def swap(self, old: str | None, new: str, workload: Workload) -> None:
        assert self._process.stdin is not None
        wish = {
            "form": str(self._forms[workload.model]),
            "input": str(reference_file(workload.file)),
        }
        self._process.stdin.write(json.dumps(wish).encode() + b"\n")
        self._process.stdin.flush()
        self._answer = self._read()

    def infer(self, name: str, workload: Workload) -> bytes:
        return self._answer

    def pids(self) -> list[int]:
        return [self._process.pid]

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pids())

    def stop(self) -> None:
        self._process.communicate(timeout=TIMEOUT_SECONDS)

    def _read(self) -> bytes:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchmarkError("the bare program ended early; see bare.log")
        return line


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
