"""Prepare models in one fork each, load what came of it in another, and print what each saw.

`python fork_prepared.py FOLDER MODEL ...` with an empty folder: a program of its own, because a
fork is only safe from a process that has run no operation. Prints a JSON line for each model.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime
from modelsup.worker.warmup import synthetic

if TYPE_CHECKING:
    from collections.abc import Callable

runtime = TensorFlowRuntime()
runtime.preload()
gc.freeze()


def in_fork(work: Callable[[], object]) -> None:
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"a child ended with status {status}")


def copied_weights() -> int:
    """Return the bytes of the mapped weights that are no pages of the file any more."""
    copied, here = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0]:
            here = line.endswith("weights.bin")
        elif here and line.startswith("Anonymous:"):
            copied += int(line.split()[1]) * 1024
    return copied


def report(spec: LaunchSpec, folder: Path) -> dict[str, Any]:
    before = set(sys.modules)
    model = runtime.load_prepared(spec, folder)
    signature = model.signatures["serving_default"]
    inputs = {info.name: synthetic(info) + 1 for info in signature.inputs}
    outputs = model.call("serving_default", inputs)
    return {
        "outputs": {name: value.tolist() for name, value in outputs.items()},
        "imported": sorted(set(sys.modules) - before),
        "copied_weights": copied_weights(),
    }


for number, source in enumerate(sys.argv[2:]):
    folder = Path(sys.argv[1]) / str(number)
    folder.mkdir()
    spec = LaunchSpec(
        uid="u",
        model="m",
        version="1",
        runtime="tensorflow",
        source=source,
        secret="s",
        temp_dir="/tmp",
        threads=1,
    )
    in_fork(lambda spec=spec, folder=folder: runtime.prepare(spec, folder))
    in_fork(lambda spec=spec, folder=folder: print(json.dumps(report(spec, folder))))
