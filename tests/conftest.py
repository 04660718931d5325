"""What process and end-to-end tests share: a real supervisor that must leave nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from modelsup.client import Client
from modelsup.worker.runtimes.echo_gpu import rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

READY_SECONDS = 60.0
STOP_SECONDS = 60.0
GONE_SECONDS = 2.0  # after a SIGKILL of the supervisor

CLI = [sys.executable, "-m", "modelsup.cli"]


def pytest_configure() -> None:
    """Let SIGINT reach what the tests start, also where a shell in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Supervisor:
    """A supervisor that runs in a process of its own, with a home folder that marks its tree."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        port: int = 0,
        files: int | None = None,
        environment: dict[str, str] | None = None,
        prefix: list[str] | None = None,
    ) -> None:
        self.home = home
        self.state_dir = home / "state"
        self.log_file = home / "supervisor.log"
        self.environment = clean_environment(home) | (environment or {})
        ready, ready_write = os.pipe()
        arguments = ["start", "--port", str(port), "--state-dir", str(self.state_dir)]
        prefix = [*(prefix or []), *(["prlimit", f"--nofile={files}:{files}"] if files else [])]
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [*prefix, *CLI, *arguments, "--ready-fd", str(ready_write), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                pass_fds=(ready_write,),
            )
        os.close(ready_write)
        try:
            self.url = self._read_url(ready)
        finally:
            os.close(ready)
        self.client = Client(self.url, timeout=60)
        self.pid = self.process.pid

    def _read_url(self, ready: int) -> str:
        poll = select.poll()
        poll.register(ready, select.POLLIN)
        data = os.read(ready, 4096) if poll.poll(READY_SECONDS * 1000) else b""
        if not data:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the supervisor did not start:\n{self.log()}")
        url: str = json.loads(data)["url"]
        return url

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self.url.rpartition(":")[2])

    def log(self) -> str:
        """Return all that the supervisor printed."""
        return self.log_file.read_text()

    def run(self, *arguments: str, check: bool = True, **options: Any) -> Any:
        """Run a `modelsup` command against it; return the completed process, as text."""
        done = subprocess.run(
            [*CLI, *arguments],
            env={**self.environment, "MODELSUP_URL": self.url},
            capture_output=True,
            text=True,
            timeout=100,
            **options,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def tree(self) -> list[psutil.Process]:
        """Return every live process that carries this home folder: supervisor, workers, orphans."""
        return [p for p in psutil.process_iter() if self._is_mine(p)]

    def _is_mine(self, process: psutil.Process) -> bool:
        try:
            mine = process.environ().get("HOME") == str(self.home)
            return mine and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False

    def open_files(self) -> int:
        """Return the number of descriptors that the supervisor has open."""
        return psutil.Process(self.pid).num_fds()

    def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        """Wait for what nothing tells; fail with the supervisor's log."""
        wait_until(condition, seconds, self.log)

    def command(self, model: str, *commands: str) -> Any:
        """Run echo commands in a model's worker; return facts about its process."""
        body = {"signature_name": "command", "inputs": {"command": commands}}
        return json.loads(self.client.predict_json(model, body)["outputs"][0])

    def kill(self) -> None:
        """SIGKILL the supervisor, and wait until it is gone."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Stop it in order if it runs; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.client.close()
        return self.process.wait(STOP_SECONDS)

    def assert_nothing_left(self, within: float = GONE_SECONDS) -> None:
        """After its end: no process of the tree, no socket on its port."""
        wait_until(lambda: not self.tree(), within, lambda: f"left: {self.tree()}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", self.port))


def clean_environment(home: Path) -> dict[str, str]:
    """Return the environment of a user whose folders are all below `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MODELSUP_", "XDG_"))}
    own = {"HOME": str(home), "PYTHONUNBUFFERED": "1", "NO_COLOR": "1"}
    # The default port of gRPC has room for one; preparing takes memory and time beside a test.
    return {**kept, **own, "MODELSUP_GRPC_PORT": "", "MODELSUP_PREPARE": "off"}


def wait_until(
    condition: Callable[[], object],
    seconds: float,
    otherwise: Callable[[], str] = lambda: "it did not happen",
) -> None:
    """Wait for what gives no event to wait on, such as the end of another's process."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, otherwise()
        pause.wait(0.01)


@contextlib.contextmanager
def supervisors(home: Path) -> Iterator[Callable[..., Supervisor]]:
    """Start supervisors below `home`; at the end stop each, and let none leave anything behind."""
    home.mkdir()
    started: list[Supervisor] = []

    def start(*flags: str, **options: Any) -> Supervisor:
        supervisor = Supervisor(home, *flags, **options)
        started.append(supervisor)
        return supervisor

    yield start
    codes = [s.stop() for s in started]
    with contextlib.ExitStack() as checks:
        for supervisor in started:
            checks.callback(supervisor.assert_nothing_left)
    run = home / "state" / "run"
    assert not run.exists() or started[-1].process.returncode == -signal.SIGKILL
    assert set(codes) <= {0, -signal.SIGKILL}, started[-1].log()


@pytest.fixture
def start_supervisor(tmp_path: Path) -> Iterator[Callable[..., Supervisor]]:
    """Start supervisors with the given flags; each is stopped, and must leave nothing behind.

    Supervisors of one test share their state folder, so that a later one can restore.
    """
    with supervisors(tmp_path / "home") as start:
        yield start


@pytest.fixture(scope="module")
def module_supervisor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Supervisor]:
    """A supervisor that the tests of a file share; use `shared_supervisor` instead."""
    with supervisors(tmp_path_factory.mktemp("shared") / "home") as start:
        yield start()


@pytest.fixture
def shared_supervisor(module_supervisor: Supervisor) -> Iterator[Supervisor]:
    """The supervisor of the tests of this file; each finds it, and leaves it, empty."""
    yield module_supervisor
    client = module_supervisor.client
    for held in client.clients():
        client.release(held.id)
    for model in client.models():
        if model.state not in {"unloaded", "failed"}:
            client.unload(model.name, force=True)
        client.remove_model(model.name)
    assert client.workers() == []


@pytest.fixture
def supervisor(start_supervisor: Callable[..., Supervisor]) -> Supervisor:
    """A supervisor with the default settings."""
    return start_supervisor()


@pytest.fixture
def echo_model(tmp_path: Path) -> Callable[..., str]:
    """Write an echo model file with the given options; return its path."""

    def write(name: str = "model", **options: Any) -> str:
        path = tmp_path / f"{name}.echo"
        path.write_text(json.dumps(options))
        return str(path)

    return write


@pytest.fixture
def fifo(tmp_path: Path) -> Callable[[str], Path]:
    """Make a FIFO for the echo command "gate:PATH".

    Opening it for writing returns once the worker is at the gate; closing it lets the worker on.
    """

    def make(name: str = "gate") -> Path:
        path = tmp_path / name
        os.mkfifo(path)
        return path

    return make


GIB = 2**30


class FakeGpus:
    """GPUs that stand in a file; `environment` shows them to a process that is yet to start.

    fake_nvml/nvml.c says what the lines of the file mean.
    """

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.environment = {
            "LD_LIBRARY_PATH": str(library.parent),
            "MODELSUP_FAKE_NVML": str(path),
        }
        path.touch()

    def set(self, *lines: str) -> None:
        """Put these lines in place of all that is there."""
        rewrite(self.path, lambda _: list(lines))

    def add(self, *lines: str) -> None:
        """Add lines."""
        rewrite(self.path, lambda old: [*old, *lines])

    def remove(self, start: str) -> None:
        """Remove the lines that start like this."""
        rewrite(self.path, lambda old: [line for line in old if not line.startswith(start)])

    def mark(self, start: str, flag: str) -> None:
        """Add a flag, such as "leak", to the lines that start like this."""
        rewrite(
            self.path,
            lambda old: [f"{line} {flag}" if line.startswith(start) else line for line in old],
        )


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the fake libnvidia-ml.so.1, without what the given macros leave out."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc here to compile the fake NVML with")
    source = Path(__file__).parent / "fake_nvml" / "nvml.c"
    built: dict[tuple[str, ...], Path] = {}

    def build(*macros: str) -> Path:
        if macros not in built:
            library = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
            flags = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", *(f"-D{m}" for m in macros)]
            command = [compiler, *flags, "-o", str(library), str(source)]
            subprocess.run(command, check=True, timeout=60)
            built[macros] = library
        return built[macros]

    return build


@pytest.fixture(scope="session")
def cuda_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Compile the fake libcuda.so.1, without what the given macros leave out."""
    compiler = shutil.which("gcc") or pytest.skip("no gcc here to compile the fake CUDA with")
    source = Path(__file__).parent / "fake_cuda" / "cuda.c"

    def build(*macros: str) -> Path:
        library = tmp_path_factory.mktemp("cuda") / "libcuda.so.1"
        flags = ["-shared", "-fPIC", f"-Wl,-soname,{library.name}", *(f"-D{m}" for m in macros)]
        command = [compiler, *flags, "-o", str(library), str(source)]
        subprocess.run(command, check=True, timeout=60)
        return library

    return build


@pytest.fixture
def fake_gpus(tmp_path: Path, nvml_library: Callable[..., Path]) -> FakeGpus:
    """One GPU of 8 GiB, "GPU-a", of which the driver keeps 256 MiB for itself."""
    gpus = FakeGpus(tmp_path / "gpus", nvml_library())
    gpus.set(f"device GPU-a {8 * GIB} {GIB // 4}")
    return gpus
