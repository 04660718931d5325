"""Baseline "bare": fork, load a prepared model, call it. No server, no supervisor, no limits.

python -m benchmarks.baselines.bare_fork

Reads `{"form": FOLDER, "input": FILE}` a line and answers each with a line: the first output of the
model as a V2 answer. The process of the line before is ended first, as in a swap.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable


def serve(lines: Iterable[str]) -> None:
    """Answer each line."""
    runtime = TensorFlowRuntime()
    runtime.preload()
    gc.freeze()
    gc.disable()
    child = 0
    print("ready", flush=True)
    for line in lines:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        wish = json.loads(line)
        child = os.fork()
        if child == 0:
            _answer(runtime, wish["form"], wish["input"])
            signal.pause()
    if child:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _answer(runtime: TensorFlowRuntime, form: str, file: str) -> None:
    spec = LaunchSpec("bare", "bare", "1", runtime.name, None, "", "")
    model = runtime.load_prepared(spec, Path(form))
    with np.load(file) as stored:
        outputs = model.call("serving_default", {str(stored["input_name"]): stored["input"]})
    data = next(iter(outputs.values())).ravel().tolist()
    print(json.dumps({"outputs": [{"data": data}]}), flush=True)


if __name__ == "__main__":
    serve(sys.stdin)
