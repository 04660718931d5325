"""What the way through the supervisor costs: small predictions, one to many connections."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import requests
from modelsup.worker.contract import SECRET_HEADER

from .baselines import direct_worker
from .loadgen import Load, measure
from .processes import BenchmarkError, Server, own_cpu_seconds
from .report import Report, progress
from .sides import InProcess, Modelsup

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .workload import Workload

MODEL = "tiny-predict"
CONNECTIONS = (1, 16, 64)
WARM_SECONDS = 0.5


@dataclass(frozen=True)
class Target:
    """One way to the model. `front`: the process whose CPU time is charged to the way."""

    name: str
    url: str
    headers: dict[str, str]
    front: int | None


@dataclass(frozen=True)
class Sample:
    """One short run against one target."""

    load: Load
    front_cpu_us: float | None  # CPU microseconds of the front process per request


def run(workload: Workload, rounds: int, seconds: float, folder: Path) -> Report:
    """Measure all targets, interleaved: every round visits each of them once."""
    with ExitStack() as stack:
        targets = _start(workload, folder, stack)
        body = workload.v1_body
        for target in targets:
            answer = requests.post(target.url, data=body, headers=target.headers, timeout=60)
            answer.raise_for_status()
            workload.check(target.name, answer.content)
            measure(target.url, target.headers, body, max(CONNECTIONS), WARM_SECONDS)
        samples: dict[tuple[str, int], list[Sample]] = {}
        for number in range(1, rounds + 1):
            for connections in CONNECTIONS:
                progress(f"predict: round {number} of {rounds}, {connections} connections")
                for target in targets:
                    sample = _sample(target, body, connections, seconds)
                    samples.setdefault((target.name, connections), []).append(sample)
    return _report([target.name for target in targets], samples, rounds, seconds)


def _start(workload: Workload, folder: Path, stack: ExitStack) -> list[Target]:
    """Start all servers with the model loaded; the stack ends them."""
    json_body = {"Content-Type": "application/json"}
    progress("predict: start the worker alone")
    worker, secret = direct_worker.start(workload.file, folder)
    stack.callback(worker.stop)
    worker_url = worker.wait_for_url()
    progress("predict: start Flask and requests in front of it")
    proxy = Server("benchmarks.baselines.flask_proxy", worker_url, secret, log=folder / "proxy.log")
    stack.callback(proxy.stop)
    proxy_url = proxy.wait_for_url()
    progress("predict: start the model in a Flask process")
    in_process = InProcess(folder)
    stack.callback(in_process.stop)
    in_process.load(MODEL, workload)
    progress("predict: start modelsup")
    modelsup = Modelsup()
    stack.callback(modelsup.stop)
    modelsup.load(MODEL, workload)
    path = f"/v1/models/{MODEL}:predict"
    return [
        Target("direct", f"{worker_url}/v1/predict", {**json_body, SECRET_HEADER: secret}, None),
        Target("modelsup", modelsup.url + path, json_body, modelsup.pids()[0]),
        Target("flask-proxy", proxy_url + path, json_body, proxy.pid),
        Target("in-process", in_process.url + path, json_body, in_process.pids()[0]),
    ]


def _sample(target: Target, body: bytes, connections: int, seconds: float) -> Sample:
    before = own_cpu_seconds(target.front) if target.front else 0.0
    load = measure(target.url, target.headers, body, connections, seconds)
    if load.errors or not load.requests:
        raise BenchmarkError(
            f"{target.name} at {connections} connections: {load.errors} errors and "
            f"{load.requests} answers; its figures would mean nothing"
        )
    if not target.front:
        return Sample(load, None)
    return Sample(load, (own_cpu_seconds(target.front) - before) / load.requests * 1e6)


def _report(
    names: Sequence[str],
    samples: dict[tuple[str, int], list[Sample]],
    rounds: int,
    seconds: float,
) -> Report:
    rows = [_row(name, n, samples[name, n]) for n in CONNECTIONS for name in names]
    found = {(row["side"], row["connections"]): row for row in rows}
    ratios = {
        "added_p50_ms_at_1": found["modelsup", 1]["p50_ms"] - found["direct", 1]["p50_ms"],
        "share_of_direct_at_16": _rate(found, "modelsup") / _rate(found, "direct"),
        "over_flask_proxy_at_16": _rate(found, "modelsup") / _rate(found, "flask-proxy"),
        "over_in_process_at_16": _rate(found, "modelsup") / _rate(found, "in-process"),
        "cpu_us_at_16": found["modelsup", 16]["front_cpu_us"],
    }
    return Report(
        benchmark="predict",
        title="Predict: tiny model, V1 JSON, loopback",
        columns=("connections", "side", "requests/s", "p50 ms", "p99 ms", "front CPU us/request"),
        lines=[_line(row) for row in rows],
        notes=[
            f"added p50 at 1 connection: {ratios['added_p50_ms_at_1']:.3f} ms",
            f"share of direct throughput at 16: {ratios['share_of_direct_at_16']:.0%}",
            f"times Flask and requests at 16: {ratios['over_flask_proxy_at_16']:.1f}",
            f"medians; runs: {rounds}, {seconds:g} s each; the load generator shares the machine",
            "flask-proxy and in-process run on Werkzeug's threaded server with keep-alive",
        ],
        data={
            "settings": {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS},
            "rows": rows,
            "ratios": ratios,
        },
    )


def _row(name: str, connections: int, samples: Sequence[Sample]) -> dict[str, Any]:
    cpu = [sample.front_cpu_us for sample in samples if sample.front_cpu_us is not None]
    loads = [sample.load for sample in samples]
    return {
        "side": name,
        "connections": connections,
        "per_second": statistics.median(load.per_second for load in loads),
        "p50_ms": statistics.median(load.p50_ms for load in loads),
        "p99_ms": statistics.median(load.p99_ms for load in loads),
        "front_cpu_us": statistics.median(cpu) if cpu else None,
        "samples": [asdict(load) for load in loads],
    }


def _rate(found: dict[tuple[str, int], dict[str, Any]], name: str) -> float:
    return float(found[name, 16]["per_second"])


def _line(row: dict[str, Any]) -> list[str]:
    cpu = "" if row["front_cpu_us"] is None else f"{row['front_cpu_us']:.0f}"
    return [
        str(row["connections"]),
        row["side"],
        f"{row['per_second']:.0f}",
        f"{row['p50_ms']:.2f}",
        f"{row['p99_ms']:.2f}",
        cpu,
    ]
