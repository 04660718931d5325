"""Baseline "bare": the model's function called in a loop, with no server around it.

python -m benchmarks.baselines.bare_call MODEL_FILE REFERENCE SECONDS
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any

import numpy as np

from .serving import KerasModel

WARM_CALLS = 5


def main(file: str, reference: str, seconds: str) -> None:
    """Load, warm up, and print how long the calls took."""
    model = KerasModel(file)
    with np.load(reference) as stored:
        batch = stored["input"]
    for _ in range(WARM_CALLS):
        model(batch)
    print(json.dumps(calls(model, batch, float(seconds))))


def calls(model: KerasModel, batch: np.ndarray[Any, Any], seconds: float) -> dict[str, float]:
    """Call the model for so long; return the calls, the median in ms, and CPU seconds a call."""
    latencies: list[float] = []
    cpu, end = time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < end or not latencies:
        started = time.perf_counter()
        model(batch)
        latencies.append(time.perf_counter() - started)
    return {
        "calls": len(latencies),
        "p50_ms": statistics.median(latencies) * 1000,
        "cpu_ms": (time.process_time() - cpu) / len(latencies) * 1000,
    }


if __name__ == "__main__":
    main(*sys.argv[1:4])
