"""What a call costs once a model is loaded: prepared, and as it is loaded from its file."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from .processes import ROOT, BenchmarkError
from .report import Report, progress, summary
from .workload import RELATIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .workload import Workload

BATCHES = (1, 8)  # rows
PREPARED, FROM_FILE = "prepared", "from its file"
SECONDS_PER_CALL = 2.0  # far more than a call takes
START_SECONDS = 300  # import, preparation and two loads


def run(workloads: Mapping[str, Workload], calls: int, folder: Path) -> Report:
    """Measure one model after the other; its two forms take turns, call by call."""
    rows = []
    for model, workload in workloads.items():
        progress(f"steady: {model}, {calls} calls of each form and batch")
        form = folder / model
        form.mkdir()
        rows += [_row(model, found) for found in _measure(workload, form, calls)]
    return Report(
        benchmark="steady",
        title="A call of a loaded model: prepared, and as loaded from its file",
        columns=("model", "rows", "form", "wall ms", "CPU ms", "wall ratio", "CPU ratio"),
        lines=[line for row in rows for line in _lines(row)],
        notes=[
            f"medians of {calls} calls each, which take turns in one process; threads: the default",
            "ratio: prepared over from its file",
        ],
        data={"settings": {"calls": calls, "batches": BATCHES}, "rows": rows},
    )


def _measure(workload: Workload, form: Path, calls: int) -> list[dict[str, Any]]:
    """Return what benchmarks.steady_calls prints. Raises BenchmarkError where answers differ."""
    command = [sys.executable, "-m", "benchmarks.steady_calls", str(workload.file), str(form)]
    done = subprocess.run(
        [*command, str(calls), *map(str, BATCHES)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
        timeout=START_SECONDS + 2 * len(BATCHES) * calls * SECONDS_PER_CALL,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    for each in found:
        if not each["off"] <= RELATIVE:
            raise BenchmarkError(f"{workload.model} answers otherwise prepared: by {each['off']:g}")
    return found


def _row(model: str, found: Mapping[str, Any]) -> dict[str, Any]:
    forms = {
        form: {f"{kind}_seconds": summary(values) for kind, values in samples.items()}
        for form, samples in found["samples"].items()
    }
    ratios = {
        kind: forms[PREPARED][kind]["median"] / forms[FROM_FILE][kind]["median"]
        for kind in ("wall_seconds", "cpu_seconds")
    }
    return {"model": model, "rows": found["rows"], "forms": forms, "ratios": ratios}


def _lines(row: Mapping[str, Any]) -> Sequence[list[str]]:
    return [_line(row, form) for form in (FROM_FILE, PREPARED)]


def _line(row: Mapping[str, Any], form: str) -> list[str]:
    medians = {kind: times["median"] for kind, times in row["forms"][form].items()}
    ratios = [f"{row['ratios'][kind]:.2f}" if form == PREPARED else "" for kind in medians]
    times = [f"{1000 * median:.2f}" for median in medians.values()]
    return [row["model"], str(row["rows"]), form, *times, *ratios]
