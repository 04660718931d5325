"""What stays in memory after models were loaded and unloaded again, over several cycles."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .processes import memory_by_pid, pss_bytes
from .report import Report, progress
from .sides import Cold, InProcess, Modelsup, Side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .workload import Workload

MB = 10**6  # bytes
COPIES = 4


def run(workload: Workload, cycles: int, folder: Path) -> Report:
    """Measure one side after the other: memory is not a matter of timing."""
    starts: list[Callable[[], Side]] = [Modelsup, lambda: InProcess(folder), lambda: Cold(folder)]
    rows = [_measure(start, workload, cycles) for start in starts]
    lines = [
        [
            row["side"],
            *(
                f"{row[key] / MB:.0f}"
                for key in ("before_bytes", "loaded_bytes", "per_model_bytes")
            ),
            f"{row['private_bytes'] / MB:.0f}",
            f"{row['peak_bytes'] / MB:.0f}",
            f"{row['left_bytes'][0] / MB:.1f}",
            f"{row['left_bytes'][-1] / MB:.1f}",
        ]
        for row in rows
    ]
    by_side = {row["side"]: row for row in rows}
    private = by_side[Modelsup.name]["private_bytes"] / by_side[Cold.name]["private_bytes"]
    return Report(
        benchmark="memory",
        title=f"Memory in MB: {COPIES} x {workload.model} loaded and unloaded, whole process tree",
        columns=(
            "side",
            "before",
            "loaded",
            "per model",
            "private",
            "peak",
            "left, cycle 1",
            f"left, cycle {cycles}",
        ),
        lines=lines,
        notes=[
            "proportional set size; before: server up, TensorFlow preloaded in modelsup",
            "private: unique set size of the processes that were not there before the loads",
            f"private memory of modelsup's workers is {private:.2f} times that of cold ones",
        ],
        data={
            "settings": {"cycles": cycles, "copies": COPIES, "model": workload.model},
            "rows": rows,
            "ratios": {"private_modelsup_over_cold": private},
        },
    )


def _measure(start: Callable[[], Side], workload: Workload, cycles: int) -> dict[str, Any]:
    names = [f"copy-{number}" for number in range(1, COPIES + 1)]
    loaded: list[int] = []
    left: list[int] = []
    private: list[int] = []
    peak = 0
    with ExitStack() as stack:
        side = start()
        stack.callback(side.stop)
        there = set(memory_by_pid(side.pids()))
        before = pss_bytes(side.pids())
        for cycle in range(1, cycles + 1):
            progress(f"memory: {side.name}, cycle {cycle} of {cycles}")
            for name in names:
                side.load(name, workload)
                workload.check(side.name, side.infer(name, workload))
                peak = max(peak, pss_bytes(side.pids()))
            memory = memory_by_pid(side.pids())
            loaded.append(sum(pss for pss, _ in memory.values()))
            peak = max(peak, loaded[-1])
            private.append(sum(uss for pid, (_, uss) in memory.items() if pid not in there))
            for name in names:
                side.unload(name)
            left.append(pss_bytes(side.pids()) - before)
    median_loaded = statistics.median(loaded)
    return {
        "side": side.name,
        "before_bytes": before,
        "loaded_bytes": median_loaded,
        "per_model_bytes": (median_loaded - before) / COPIES,
        "private_bytes": statistics.median(private),
        "peak_bytes": peak,
        "left_bytes": left,
    }
