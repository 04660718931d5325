"""Run the in-process pool beside ours, as a program of its own, and read what it measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from .results import Pool, PoolRow

if TYPE_CHECKING:
    from collections.abc import Sequence


def run_pool(
    source: str | None,
    runtime: str,
    instances: Sequence[int],
    batch: int = 1,
    threads: int | None = None,
) -> Pool:
    """Measure one process with so many instances, each called with `batch` rows.

    What goes wrong becomes the pool's `reason`. The program ends with this one, however this ends.
    """
    arguments = ["--runtime", runtime, "--instances", ",".join(map(str, instances))]
    arguments += ["--batch", str(batch)]
    arguments += [] if threads is None else ["--threads", str(threads)]
    arguments += [] if source is None else ["--", source]
    far_end, near_end = os.pipe()
    try:
        with TemporaryDirectory(prefix="modelsup-profile-") as folder:
            return read_pool(*_run(arguments, far_end, folder))
    finally:
        os.close(near_end)


def _run(arguments: Sequence[str], lifeline: int, folder: str) -> tuple[int, str, str]:
    """Return the exit code of the program, and all that it wrote."""
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "modelsup.worker.pool", "--lifeline", str(lifeline), *arguments],
        env={**os.environ, "TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        pass_fds=(lifeline,),
        start_new_session=True,
    )
    os.close(lifeline)
    try:
        out, err = process.communicate()
    except BaseException:
        _kill(process)
        raise
    return process.returncode, out, err


def _kill(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def read_pool(code: int, out: str, err: str) -> Pool:
    """Return what the program printed; it ended with `code`."""
    if code != 0:
        last = next((line for line in reversed(err.splitlines()) if line.strip()), "no message")
        return Pool(reason=f"it ended with code {code}: {last.strip()}")
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    rows = tuple(PoolRow(**row) for row in found["rows"] if "error" not in row)
    failed = [f"{row['instances']}: {row['error']}" for row in found["rows"] if "error" in row]
    return Pool(found["framework_bytes"], rows, "; ".join(failed) or None)
