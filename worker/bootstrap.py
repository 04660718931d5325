"""From a fresh fork to a serving worker: lifeline, environment, load, warm-up, ready, serve."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from . import lifeline
from .contract import (
    EXIT_BAD_LAUNCH,
    EXIT_LOAD_FAILED,
    GO_ON,
    LaunchSpec,
    Stage,
    StatusMessage,
)
from .footprint import Meter
from .loading import load_best
from .preparing import prepare
from .reporting import reporting_failures
from .serve import build_app, serve
from .warmup import warm_up

if TYPE_CHECKING:
    from .reporting import Tell
    from .runtimes.base import Runtime
    from .serve import App


STAND_STILL: Final = 5.0  # seconds at most, while the supervisor measures


@dataclass(frozen=True, slots=True)
class Descriptors:
    """What the supervisor hands to a worker, in the order of the message."""

    listener: int
    log: int
    lifeline: int
    status: int


def run_worker(spec: LaunchSpec, descriptors: Descriptors, runtime: Runtime) -> NoReturn:
    """Be the worker of `spec`, in a process that was just forked; never returns."""
    code = EXIT_BAD_LAUNCH
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, {GO_ON})  # before there are threads
        os.setsid()
        lifeline.arm(descriptors.lifeline)
        _redirect_output(descriptors.log)
        if spec.cgroup is not None:
            Path(spec.cgroup).write_text("0")  # what it touches from now on counts
        enter_environment(spec)
        listener = socket.socket(fileno=descriptors.listener)

        def tell(message: StatusMessage) -> None:
            os.write(descriptors.status, message.to_line())

        if spec.prepare_into is None:
            code = load_and_serve(spec, runtime, listener, tell)
        else:
            code = prepare(spec, runtime, tell)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _redirect_output(log: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def enter_environment(spec: LaunchSpec) -> None:
    """Take on the worker's own environment, temporary folder, name and random state."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(spec.environment, TMPDIR=spec.temp_dir)
    tempfile.tempdir = None
    os.chdir(spec.temp_dir)
    Path("/proc/self/comm").write_text(f"model:{spec.model}"[:15])
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")


def load_and_serve(spec: LaunchSpec, runtime: Runtime, listener: socket.socket, tell: Tell) -> int:
    """Load the model, warm it up, say so, and serve until SIGTERM. Returns an exit code."""
    with reporting_failures(spec, tell) as failed:
        app, ready = _load(spec, runtime, tell)
    if failed:
        return EXIT_LOAD_FAILED
    serve(app, listener, on_started=lambda: tell(ready))
    return 0


def _load(spec: LaunchSpec, runtime: Runtime, tell: Tell) -> tuple[App, StatusMessage]:
    """Return what serves the model, and the message that says so."""
    seconds: dict[str, float] = {}
    meter = Meter()

    def say(stage: Stage) -> None:
        tell(StatusMessage(spec.uid, stage, seconds=dict(seconds)))

    def on_device_open() -> None:
        if spec.measure_context:
            framework = runtime.framework
            tell(StatusMessage(spec.uid, "loading", framework=framework, device_open=True))
            signal.sigtimedwait({GO_ON}, STAND_STILL)

    gc.enable()
    say("loading")
    started = time.monotonic()
    loaded = load_best(spec, runtime, on_device_open)
    model = loaded.model
    seconds["load"] = time.monotonic() - started
    meter.mark("load")
    say("warming")
    started = time.monotonic()
    warm_up(model, min(spec.warm_up_batch, spec.max_batch_size))
    seconds["warm"] = time.monotonic() - started
    meter.mark("first_call")
    app = build_app(model, spec)
    settle_heap()
    ready = StatusMessage(
        spec.uid,
        "ready",
        signatures=tuple(model.signatures.values()),
        seconds=seconds,
        memory=meter.footprint(),
        framework=runtime.framework,
        preparable=loaded.preparable,
        from_prepared=loaded.from_prepared,
        prepared_error=loaded.prepared_error,
    )
    return app, ready


def settle_heap() -> None:
    """Keep the loaded model out of every later collection, and give spare heap back.

    Without the freeze a request that makes many lists triggers full collections over all the
    framework's objects, a fifth of a second each.
    """
    gc.collect()
    gc.freeze()
    with contextlib.suppress(AttributeError, OSError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
