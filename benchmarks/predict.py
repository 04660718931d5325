"""What the way through the supervisor costs: predictions in three forms, by many connections."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import requests

from .bodies import body_of, values
from .loadgen import Load, measure
from .predict_sides import SIDES, Sides, Target
from .processes import ROOT, BenchmarkError, own_cpu_seconds
from .reference import reference_file
from .report import Report, progress
from .workload import ABSOLUTE, RELATIVE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .bodies import Body
    from .workload import Workload

CONNECTIONS = (1, 16, 64)
CASES = (
    ("tiny", "json"), ("mobilenet", "json"), ("mobilenet", "binary"), ("mobilenet", "jpeg"),
)  # fmt: skip
WARM_SECONDS = 0.5
IMAGE_RUNS = 3  # times as long as those of a small model: some sides give few answers
BARE_TIMEOUT = 120  # seconds, its import included

Key = tuple[str, str, str, int]  # model, form, side, connections


@dataclass(frozen=True)
class Sample:
    """One short run against one target."""

    load: Load
    front_cpu_us: float | None  # CPU microseconds of the front process per request


def run(workloads: Mapping[str, Workload], rounds: int, seconds: float, folder: Path) -> Report:
    """Measure all targets, interleaved: every round visits each of them once."""
    cases = [case for case in CASES if case[0] in workloads]
    samples: dict[Key, list[Sample]] = {}
    bare: dict[str, list[dict[str, float]]] = {}
    for model, workload in workloads.items():
        length = seconds * (IMAGE_RUNS if workload.is_image else 1)
        with Sides(workload, folder / model) as sides:
            bodies = {form: body_of(workload, form) for name, form in cases if name == model}
            for form, body in bodies.items():
                _check(workload, form, [sides.target(side, body) for side in SIDES], body)
            for number in range(1, rounds + 1):
                progress(f"predict: {model}, round {number} of {rounds}")
                bare.setdefault(model, []).append(_bare(workload, length))
                for connections in CONNECTIONS:
                    for form, body in bodies.items():
                        for side in SIDES:
                            sample = _sample(sides.target(side, body), body, connections, length)
                            samples.setdefault((model, form, side, connections), []).append(sample)
    return _report(samples, bare, rounds, seconds)


def _check(workload: Workload, form: str, targets: Sequence[Target], body: Body) -> None:
    """Warm each target up, and see that all give the right answer; for a JPEG, the same one."""
    first: np.ndarray[Any, Any] | None = None
    for target in targets:
        answer = requests.post(target.url, data=body.content, headers=target.headers, timeout=60)
        answer.raise_for_status()
        if form != "jpeg":
            workload.check(target.name, answer.content)
        got = values(answer.content)
        first = got if first is None else first
        if not np.allclose(got, first, rtol=RELATIVE, atol=ABSOLUTE):
            raise BenchmarkError(f"{target.name} answers {form} otherwise than {targets[0].name}")
        measure(target.url, target.headers, body.content, max(CONNECTIONS), WARM_SECONDS)


def _bare(workload: Workload, seconds: float) -> dict[str, float]:
    """Call the model's function in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.baselines.bare_call", str(workload.file)]
    command += [str(reference_file(workload.file)), str(seconds)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=BARE_TIMEOUT
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _sample(target: Target, body: Body, connections: int, seconds: float) -> Sample:
    before = own_cpu_seconds(target.front) if target.front else 0.0
    load = measure(target.url, target.headers, body.content, connections, seconds)
    if load.errors or not load.requests:
        raise BenchmarkError(
            f"{target.name} at {connections} connections: {load.errors} errors and "
            f"{load.requests} answers; its figures would mean nothing"
        )
    if not target.front:
        return Sample(load, None)
    return Sample(load, (own_cpu_seconds(target.front) - before) / load.requests * 1e6)


def _report(
    samples: Mapping[Key, Sequence[Sample]],
    bare: Mapping[str, Sequence[Mapping[str, float]]],
    rounds: int,
    seconds: float,
) -> Report:
    rows = {key: _row(key, found) for key, found in samples.items()}
    calls = {
        model: {name: statistics.median(call[name] for call in found) for name in found[0]}
        for model, found in bare.items()
    }
    ratios = {f"{model}, {form}": _ratios(rows, model, form, calls) for model, form, *_ in rows}
    return Report(
        benchmark="predict",
        title="Predict: one request of one row, loopback",
        columns=(
            "model", "form", "connections", "side", "requests/s", "p50 ms", "p99 ms",
            "front CPU us/request",
        ),
        lines=[_line(rows[key]) for key in sorted(rows, key=_order)],
        notes=[
            *(f"{case}: {_said(found)}" for case, found in ratios.items()),
            f"medians; runs: {rounds}, {seconds:g} s each, {IMAGE_RUNS} times that for images",
            "the load generator shares the machine",
            "bare: the model's function in a loop, with no server, in a process of its own",
            "flask-proxy and in-process run on Werkzeug's threaded server with keep-alive",
        ],
        data={
            "settings": {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS},
            "rows": list(rows.values()),
            "bare": calls,
            "ratios": ratios,
        },
    )  # fmt: skip


def _order(key: Key) -> tuple[int, int, int]:
    model, form, side, connections = key
    return CASES.index((model, form)), connections, SIDES.index(side)


def _ratios(
    rows: Mapping[Key, Mapping[str, Any]],
    model: str,
    form: str,
    calls: Mapping[str, Mapping[str, float]],
) -> dict[str, float]:
    def of(side: str, connections: int, what: str) -> float:
        return float(rows[model, form, side, connections][what])

    rate = of("modelsup", 16, "per_second")
    return {
        "added_p50_ms_at_1": of("modelsup", 1, "p50_ms") - of("direct", 1, "p50_ms"),
        "share_of_direct_at_16": rate / of("direct", 16, "per_second"),
        "over_flask_proxy_at_16": rate / of("flask-proxy", 16, "per_second"),
        "over_in_process_at_16": rate / of("in-process", 16, "per_second"),
        "p50_over_bare_at_1": of("modelsup", 1, "p50_ms") / calls[model]["p50_ms"],
    }


def _said(ratios: Mapping[str, float]) -> str:
    return (
        f"added p50 at 1 connection {ratios['added_p50_ms_at_1']:.2f} ms, "
        f"p50 {ratios['p50_over_bare_at_1']:.2f} times bare; at 16 "
        f"{ratios['share_of_direct_at_16']:.0%} of direct, "
        f"{ratios['over_flask_proxy_at_16']:.1f} times flask-proxy, "
        f"{ratios['over_in_process_at_16']:.1f} times in-process"
    )


def _row(key: Key, samples: Sequence[Sample]) -> dict[str, Any]:
    cpu = [sample.front_cpu_us for sample in samples if sample.front_cpu_us is not None]
    loads = [sample.load for sample in samples]
    return {
        **dict(zip(("model", "form", "side", "connections"), key, strict=True)),
        "per_second": statistics.median(load.per_second for load in loads),
        "p50_ms": statistics.median(load.p50_ms for load in loads),
        "p99_ms": statistics.median(load.p99_ms for load in loads),
        "front_cpu_us": statistics.median(cpu) if cpu else None,
        "samples": [asdict(load) for load in loads],
    }


def _line(row: Mapping[str, Any]) -> list[str]:
    cpu = "" if row["front_cpu_us"] is None else f"{row['front_cpu_us']:.0f}"
    return [
        row["model"],
        row["form"],
        str(row["connections"]),
        row["side"],
        f"{row['per_second']:.0f}",
        f"{row['p50_ms']:.2f}",
        f"{row['p99_ms']:.2f}",
        cpu,
    ]
