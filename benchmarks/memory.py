"""What stays in memory after models were loaded and unloaded again, over several cycles."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from examples.tree_memory import NOTHING, memory_by_pid, tree_memory

from .report import Report, progress
from .sides import Cold, InProcess, Modelsup, Side

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .workload import Workload

MB = 10**6  # bytes
COPIES = 4


COLUMNS = {
    "before": "before_bytes",
    "loaded": "loaded_bytes",
    "peak": "peak_bytes",
    "per model": "per_model_bytes",
    "private": "private_bytes",
}


def run(workload: Workload, cycles: int, folder: Path) -> Report:
    """Measure one side after the other: memory is not a matter of timing."""
    starts: list[Callable[[], Side]] = [
        lambda: _prepared(workload, folder / "cache"),
        lambda: Modelsup(folder / "cache", prepared=False),
        lambda: InProcess(folder),
        lambda: Cold(folder),
    ]
    rows = [_measure(start, workload, cycles) for start in starts]
    by_side = {row["side"]: row for row in rows}
    ratios = {
        f"private_modelsup_over_{side}": by_side[Modelsup.name]["private_bytes"]
        / by_side[side]["private_bytes"]
        for side in (Modelsup.unprepared, Cold.name)
    }
    return Report(
        benchmark="memory",
        title=f"Memory in MB: {COPIES} x {workload.model} loaded and unloaded, whole process tree",
        columns=("side", *COLUMNS, "left, cycle 1", f"cycle {cycles}", "left anonymous"),
        lines=[_line(row) for row in rows],
        notes=[
            "proportional set size; before: server up, TensorFlow preloaded in modelsup",
            "private: unique set size of the processes that were not there before the loads",
            *(f"{name}: {ratio:.2f}" for name, ratio in ratios.items()),
            "left anonymous: last cycle, without page cache, which other programs share (README)",
        ],
        data={
            "settings": {"cycles": cycles, "copies": COPIES, "model": workload.model},
            "rows": rows,
            "ratios": ratios,
        },
    )


def _prepared(workload: Workload, cache: Path) -> Modelsup:
    side = Modelsup(cache)
    try:
        side.prepare(workload)
    except BaseException:
        side.stop()
        raise
    return side


def _line(row: dict[str, Any]) -> list[str]:
    left = [row["left_bytes"][0], row["left_bytes"][-1], row["left_anonymous_bytes"][-1]]
    return [
        row["side"],
        *(f"{row[key] / MB:.0f}" for key in COLUMNS.values()),
        *(f"{amount / MB:.1f}" for amount in left),
    ]


def _measure(start: Callable[[], Side], workload: Workload, cycles: int) -> dict[str, Any]:
    names = [f"copy-{number}" for number in range(1, COPIES + 1)]
    loaded: list[int] = []
    private: list[int] = []
    left: list[int] = []
    left_anonymous: list[int] = []
    peak = 0
    with ExitStack() as stack:
        side = start()
        stack.callback(side.stop)
        there = memory_by_pid(side.pids())
        before = sum(there.values(), start=NOTHING)
        for cycle in range(1, cycles + 1):
            progress(f"memory: {side.name}, cycle {cycle} of {cycles}")
            for name in names:
                side.load(name, workload)
                workload.check(side.name, side.infer(name, workload))
                peak = max(peak, tree_memory(side.pids()).pss)
            memory = memory_by_pid(side.pids())
            loaded.append(sum(process.pss for process in memory.values()))
            private.append(sum(p.private for pid, p in memory.items() if pid not in there))
            for name in names:
                side.unload(name)
            after = tree_memory(side.pids())
            left.append(after.pss - before.pss)
            left_anonymous.append(after.anonymous - before.anonymous)
    return {
        "side": side.name,
        "before_bytes": before.pss,
        "loaded_bytes": statistics.median(loaded),
        "per_model_bytes": (statistics.median(loaded) - before.pss) / COPIES,
        "private_bytes": statistics.median(private),
        "peak_bytes": max(peak, *loaded),
        "left_bytes": left,
        "left_anonymous_bytes": left_anonymous,
    }
