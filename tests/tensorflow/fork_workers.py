"""Preload the runtime, fork a child per model, and print what each child saw, as JSON lines.

`python fork_workers.py PATH ...`: a program of its own, because a fork is only safe from a
process that has run no operation. The last line is about the parent.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime
from modelsup.worker.warmup import synthetic

runtime = TensorFlowRuntime()
runtime.preload()
gc.freeze()


def threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def load_and_call(path: str) -> dict[str, Any]:
    before = set(sys.modules)
    spec = LaunchSpec(
        uid="u",
        model="m",
        version="1",
        runtime="tensorflow",
        source=path,
        secret="s",
        temp_dir="/tmp",
        threads=1,
    )
    model = runtime.load(spec)
    signature = model.signatures["serving_default"]
    inputs = {info.name: synthetic(info) + 1 for info in signature.inputs}
    outputs = model.call("serving_default", inputs)
    return {
        "outputs": {name: value.tolist() for name, value in outputs.items()},
        "imported": sorted(set(sys.modules) - before),
    }


for source in sys.argv[1:]:
    pid = os.fork()
    if pid == 0:
        print(json.dumps(load_and_call(source)), flush=True)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"the child of {source} ended with status {status}")
print(json.dumps({"threads": threads()}))
