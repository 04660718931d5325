"""Call a model as it is loaded from its file and as it is prepared, in turns, in one process.

python -m benchmarks.steady_calls MODEL_FILE FOLDER CALLS BATCH ...

Prints JSON: a list with one entry for each batch size, with the samples of both sides.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from modelsup.worker.contract import LaunchSpec
from modelsup.worker.runtimes.tensorflow import TensorFlowRuntime

if TYPE_CHECKING:
    from modelsup.worker.runtimes.base import Model

SIGNATURE = "serving_default"
SEED = 3
WARM_CALLS = 5
QUIET_SECONDS = 0.002  # after a call its threads look for work for a moment, which counts too

Samples = dict[str, list[float]]  # "wall", "cpu": seconds of each call


def main(file: Path, folder: Path, calls: int, batches: list[int]) -> None:
    """Prepare the model into an empty folder, load both forms, measure, and print."""
    runtime = TensorFlowRuntime()
    spec = LaunchSpec("steady", "steady", "1", runtime.name, str(file), "", str(folder))
    runtime.prepare(spec, folder)
    sides = {
        "prepared": runtime.load_prepared(spec, folder),
        "from its file": runtime.load(spec),
    }
    gc.collect()
    gc.freeze()  # as in a worker
    print(json.dumps([_measure(sides, rows, calls) for rows in batches]))


def _measure(sides: dict[str, Model], rows: int, calls: int) -> dict[str, Any]:
    batch = _batch(next(iter(sides.values())), rows)
    samples: dict[str, Samples] = {side: {"wall": [], "cpu": []} for side in sides}
    for number in range(-WARM_CALLS, calls):
        order = list(sides) if number % 2 else list(reversed(sides))
        for side in order:
            _call(sides[side], batch, samples[side] if number >= 0 else {"wall": [], "cpu": []})
    answers = [next(iter(model.call(SIGNATURE, batch).values())) for model in sides.values()]
    off = float(np.abs(answers[0] - answers[1]).max() / np.abs(answers[1]).max())
    return {"rows": rows, "samples": samples, "off": off}


def _batch(model: Model, rows: int) -> dict[str, np.ndarray[Any, Any]]:
    (info,) = model.signatures[SIGNATURE].inputs
    assert info.shape is not None
    shape = (rows, *(size or 1 for size in info.shape[1:]))
    return {info.name: np.random.default_rng(SEED).random(shape, dtype=np.float32)}


def _call(model: Model, batch: dict[str, np.ndarray[Any, Any]], samples: Samples) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    model.call(SIGNATURE, batch)
    samples["wall"].append(time.perf_counter() - wall)
    time.sleep(QUIET_SECONDS)
    samples["cpu"].append(time.process_time() - cpu)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [int(n) for n in sys.argv[4:]])
