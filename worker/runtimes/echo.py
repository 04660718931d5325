"""A runtime without an ML package: it answers with what it was sent, and misbehaves on demand.

Its model is a JSON file, or no file at all:

    {"inputs": {"x": {"dtype": "float32", "shape": [null, null]}},
     "on_load": ["sleep:0.5"], "on_call": ["leak:1000000"]}

`on_load` runs while the model loads, `on_call` before each answer. The signature "command" runs
one command on request: `{"signature_name": "command", "inputs": {"command": ["crash"]}}`.
With "on_prepare" it has a prepared form, a copy of the file: those commands run while it is made.
Loading that form runs "on_load_prepared" in the place of "on_load".
"fake_gpu" names the file behind the command "gpu:BYTES"; `echo_gpu` says what stands in it.
"fake_gpu_context" has the bytes that it takes of that GPU before it loads, beside its cap.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ..contract import LaunchSpec, Signature, TensorInfo
from .base import LoadFailed, NotPreparable, ignore
from .echo_gpu import PretendedGpu

if TYPE_CHECKING:
    from collections.abc import Callable

    from .base import Arrays

PREPARED: Final = "model.json"  # the prepared form's only file
DEFAULT_INPUTS: Final = {"x": {"dtype": "float32", "shape": [None, None]}}
_SLEEPER: Final = [sys.executable, "-c", "import time; time.sleep(3600)"]

_kept: list[bytearray] = []
_gpus: list[PretendedGpu] = []  # the one of this worker, if it has one


def _die(number: signal.Signals) -> Callable[[str], None]:
    return lambda _: os.kill(os.getpid(), number)


def _hang(_: str) -> None:
    threading.Event().wait()


def _fail(argument: str) -> None:
    raise LoadFailed("load_error", argument or "told to fail")


def _refuse(reason: str) -> None:
    raise NotPreparable(reason)


def _no_space(_: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _gate(path: str) -> None:
    """Wait until somebody opens the FIFO `path` for writing, and closes it again."""
    Path(path).read_bytes()


def _leak(size: str) -> None:
    _kept.append(bytearray(os.urandom(1)) * int(size))


def _allocate_gpu(size: str) -> None:
    if not _gpus:
        raise ValueError('the command gpu needs a GPU, and "fake_gpu" in the model file')
    _gpus[0].allocate(int(size))


def _ignore_sigterm(_: str) -> None:
    # Blocked, not ignored: the server sets its own handler later, and threads inherit the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _grandchild(kind: str) -> None:
    """Leave a process behind: in the worker's "group", or in a "session" of its own."""
    subprocess.Popen(_SLEEPER, start_new_session=kind == "session")  # noqa: S603


def _close_listener(_: str) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            listener = socket.socket(fileno=os.dup(int(name)))
        except OSError:
            continue
        with listener:
            if listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                os.close(int(name))


def _die_soon(seconds: str) -> None:
    threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()


COMMANDS: Final[dict[str, Callable[[str], None]]] = {
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "gate": _gate,
    "hang": _hang,
    "crash": _die(signal.SIGSEGV),
    "kill": _die(signal.SIGKILL),
    "stop": _die(signal.SIGSTOP),
    "die-soon": _die_soon,
    "exit": lambda code: os._exit(int(code or 0)),
    "fail": _fail,
    "refuse": _refuse,
    "no-space": _no_space,
    "leak": _leak,
    "gpu": _allocate_gpu,
    "print": lambda text: print(text, flush=True),  # noqa: T201
    "ignore-sigterm": _ignore_sigterm,
    "grandchild": _grandchild,
    "close-listener": _close_listener,
}


def run_command(command: str) -> None:
    """Run one command, "NAME" or "NAME:ARGUMENT". Raises ValueError on an unknown name."""
    name, _, argument = command.partition(":")
    if name not in COMMANDS:
        raise ValueError(f"echo knows no command {name!r}; it knows {', '.join(sorted(COMMANDS))}")
    COMMANDS[name](argument)


class EchoModel:
    """Answers each input under its own name."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._on_call: list[str] = options.get("on_call", [])
        tensors = tuple(
            TensorInfo(name, spec["dtype"], tuple(spec["shape"]))
            for name, spec in options.get("inputs", DEFAULT_INPUTS).items()
        )
        batchable = all(t.shape and t.shape[0] is None for t in tensors)
        text = TensorInfo("command", "string", (None,))
        facts = TensorInfo("facts", "string", (1,))
        self.signatures = {
            "serving_default": Signature("serving_default", tensors, tensors, batchable),
            "command": Signature("command", (text,), (facts,), batchable=False),
        }

    def call(self, signature: str, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
        """Run the commands that were asked for; answer the inputs, or facts about the process."""
        if signature == "command":
            for command in filter(None, inputs["command"]):  # the warm-up sends an empty one
                run_command(command.decode())
            facts = {"pid": os.getpid(), "environment": dict(os.environ), "folder": str(Path.cwd())}
            return {"facts": np.array([json.dumps(facts).encode()], dtype=object)}
        for command in self._on_call:
            run_command(command)
        return dict(inputs)


class EchoRuntime:
    """Runtime "echo"."""

    name = "echo"
    framework = "echo 1"

    def preload(self) -> None:
        """Import nothing: there is no framework."""

    def load(self, spec: LaunchSpec, on_device_open: Callable[[], None] = ignore) -> EchoModel:
        """Read the JSON file, if there is one, and run its `on_load` commands."""
        return _load(spec, _options(spec), "on_load", on_device_open)

    def is_preparable(self, model: EchoModel) -> bool:
        """Return whether the model file speaks of it."""
        return "on_prepare" in model.options

    def prepare(self, spec: LaunchSpec, folder: Path) -> None:
        """Run the `on_prepare` commands and copy the JSON file."""
        options = _options(spec)
        for command in options.get("on_prepare", ["refuse:the model file has no on_prepare"]):
            run_command(command)
        (folder / PREPARED).write_text(json.dumps(options))

    def load_prepared(
        self, spec: LaunchSpec, folder: Path, on_device_open: Callable[[], None] = ignore
    ) -> EchoModel:
        """Read the copy, and run its `on_load_prepared` commands."""
        options = json.loads((folder / PREPARED).read_bytes())
        return _load(spec, options, "on_load_prepared", on_device_open)


def _options(spec: LaunchSpec) -> dict[str, Any]:
    """Return what stands in the model file. Raises LoadFailed."""
    if spec.source is None:
        return {}
    try:
        options: dict[str, Any] = json.loads(Path(spec.source).read_bytes())
    except (OSError, ValueError) as error:
        raise LoadFailed("bad_model", f"{spec.source} is not an echo model: {error}") from error
    return options


def _load(
    spec: LaunchSpec, options: dict[str, Any], commands: str, on_device_open: Callable[[], None]
) -> EchoModel:
    if spec.device is not None and "fake_gpu" in options:
        path, context = options["fake_gpu"], options.get("fake_gpu_context", 0)
        _gpus[:] = [PretendedGpu(path, spec.device, spec.gpu_memory_limit, context)]
        on_device_open()
    for command in options.get(commands, []):
        run_command(command)
    return EchoModel(options)
