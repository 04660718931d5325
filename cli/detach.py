"""A supervisor in the background: start it, and hear through a pipe that it is ready."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from .output import say

if TYPE_CHECKING:
    from pathlib import Path

_READY_SECONDS: Final = 120.0  # a slow disk, with a forkserver to preload
_END_SECONDS: Final = 10.0
_LOG_LINES: Final = 20


def announce(url: str, grpc: str | None, ready_fd: int | None) -> None:
    """Tell that the supervisor is ready: the one who waits at the pipe, else people."""
    if ready_fd is None:
        say(ready_text(url, grpc, os.getpid()))
        return
    with os.fdopen(ready_fd, "w") as pipe:
        json.dump({"url": url, "grpc": grpc, "pid": os.getpid()}, pipe)
        pipe.write("\n")


def ready_text(url: str, grpc: str | None, pid: int) -> str:
    """Return the words for a supervisor that is ready. `grpc` is HOST:PORT, None without gRPC."""
    return f"modelsup is ready at {url} ({f'gRPC {grpc}, ' if grpc else ''}pid {pid})"


def start_detached(arguments: list[str], config_path: Path | None, log: Path) -> dict[str, Any]:
    """Start `modelsup start` in a session of its own; return its "url", "grpc", "pid" and "log".

    Its output goes to the file `log`. Waits at most 120 s until it is ready. Raises
    ClickException with the last lines of the log if it ends before, or is not ready in time.
    """
    try:
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = log.open("ab")
    except OSError as error:
        raise click.ClickException(f"cannot write {log}: {error.strerror}") from error
    config = [] if config_path is None else [f"--config={config_path}"]
    reader, writer = os.pipe()
    with file, os.fdopen(reader, "rb") as pipe:
        before = file.tell()
        process = subprocess.Popen(  # noqa: S603  # this very program
            [
                *(sys.executable, "-m", "modelsup.cli", "start", f"--ready-fd={writer}"),
                *config,
                *arguments,
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            pass_fds=[writer],
        )
        os.close(writer)
        try:
            line = _first_line(pipe.fileno(), time.monotonic() + _READY_SECONDS)
        except BaseException:
            process.terminate()  # interrupted: nobody would know of it
            raise
    if line:
        return {**json.loads(line), "log": str(log)}
    raise click.ClickException(_explain(process, log, before))


def _first_line(pipe: int, deadline: float) -> bytes:
    """Return what is written until the end of a line; b"" if the writer ends or is late."""
    text = b""
    while not text.endswith(b"\n"):
        readable, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(pipe, 4096) if readable else b""
        if not piece:
            return b""
        text += piece
    return text


def _explain(process: subprocess.Popen[bytes], log: Path, before: int) -> str:
    """Return why a supervisor is not ready; one that still runs is ended."""
    try:
        problem = f"ended with exit code {process.wait(timeout=1.0)}"
    except subprocess.TimeoutExpired:
        problem = f"was not ready within {_READY_SECONDS:g} s and has been stopped"
        process.terminate()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    with log.open("rb") as file:
        file.seek(before)
        lines = file.read().decode(errors="replace").splitlines()[-_LOG_LINES:]
    return "\n".join([f"the supervisor {problem}; its log {log} ends with:", *lines])
