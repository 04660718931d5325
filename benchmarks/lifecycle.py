"""How fast workers end: unloaded, killed, over their memory limit; and whether `plan` is right."""

from __future__ import annotations

import os
import select
import signal
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from modelsup.client import Client, ModelsupError

from examples.local_supervisor import local_supervisor

from .processes import BenchmarkError
from .report import Report, progress, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .workload import Workload

LIMIT = 100 * 10**6  # bytes; the greedy worker's
EATEN = 200 * 10**6  # bytes
GONE_SECONDS = 30.0

Case = tuple[str, list[float]]  # what was measured, and its samples


def run(workloads: Mapping[str, Workload], rounds: int) -> Report:
    """Measure each end `rounds` times, and each model's load by `plan` and by the clock."""
    cases: list[Case] = []
    with (
        local_supervisor("--preload", "echo,tensorflow", "--prepare", "off") as supervisor,
        Client(supervisor.url) as client,
    ):
        cases.append(("unload, idle echo", _unloads(client, None, rounds)))
        tiny = str(workloads["tiny"].file)
        cases.append(("unload, idle Keras model", _unloads(client, tiny, rounds)))
        cases.append(("kill -9 of a worker, to its waiter's answer", _kills(client, rounds)))
        cases.append(("over the limit, to its end: cgroup", _eaters(client, rounds)))
        errors = {name: _plan_error(client, w, rounds) for name, w in workloads.items()}
    with local_supervisor("--cgroups", "off") as supervisor, Client(supervisor.url) as client:
        cases.append(("over the limit, to its end: watcher", _eaters(client, rounds)))
    return _report(cases, errors, rounds)


def _repeat(what: str, rounds: int, once: Callable[[], float]) -> list[float]:
    """Call `once` one time more than asked for; the first does not count."""
    progress(f"lifecycle: {what}")
    return [once() for _ in range(rounds + 1)][1:]


def _unloads(client: Client, source: str | None, rounds: int) -> list[float]:
    def once() -> float:
        client.load("idle", source, runtime=None if source else "echo")
        receipt = client.unload("idle")
        if not receipt.verified:
            raise BenchmarkError(f"an unload was not verified: {receipt}")
        return receipt.seconds.total

    samples = _repeat(f"unload {source or 'echo'}", rounds, once)
    client.remove_model("idle")
    return samples


def _kills(client: Client, rounds: int) -> list[float]:
    """Kill a worker that hangs in a request; the time until that request is answered."""

    def once() -> float:
        client.load("killed", runtime="echo", retry=False)
        pid = _pid(client)
        with ThreadPoolExecutor(1) as pool:
            waiter = pool.submit(_answered, client, "hang")
            _until_busy(client)
            started = time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            seconds = waiter.result() - started
        client.unload("killed", force=True)
        return seconds

    return _repeat("kill a worker", rounds, once)


def _answered(client: Client, *commands: str) -> float:
    """Send echo commands that end the worker; return when the error came."""
    try:
        client.predict_json("killed", _command(*commands))
    except ModelsupError:
        return time.perf_counter()
    raise BenchmarkError("a request was answered by a worker that should have ended")


def _pid(client: Client) -> int:
    """Return the process id of the only worker."""
    (worker,) = client.workers()
    assert worker.pid is not None
    return worker.pid


def _until_busy(client: Client) -> None:
    while not any(worker.in_flight for worker in client.workers()):
        time.sleep(0.001)


def _eaters(client: Client, rounds: int) -> list[float]:
    """Let a worker eat past its limit; the time from the request to the end of its process."""

    def once() -> float:
        client.load("killed", runtime="echo", ram=LIMIT, retry=False)
        process = os.pidfd_open(_pid(client))
        started = time.perf_counter()
        _answered(client, f"leak:{EATEN}", "hang")
        poll = select.poll()
        poll.register(process, select.POLLIN)
        if not poll.poll(GONE_SECONDS * 1000):
            raise BenchmarkError(f"a worker over its limit lives after {GONE_SECONDS:.0f} s")
        seconds = time.perf_counter() - started
        os.close(process)
        client.unload("killed", force=True)
        return seconds

    return _repeat("eat past the limit", rounds, once)


def _command(*commands: str) -> dict[str, Any]:
    return {"signature_name": "command", "inputs": {"command": commands}}


def _plan_error(client: Client, workload: Workload, rounds: int) -> float:
    """Return the median of |predicted - measured| / measured over loads after the first."""
    client.load("planned", str(workload.file))
    errors = []
    for _ in range(rounds):
        client.unload("planned")
        plan = client.plan("planned")
        if plan.estimated or not plan.seconds:
            raise BenchmarkError(f"a model that was loaded has no learned figures: {plan}")
        started = time.perf_counter()
        client.load("planned")
        measured = time.perf_counter() - started
        errors.append(abs(plan.seconds - measured) / measured)
    client.unload("planned")
    client.remove_model("planned")
    return statistics.median(errors)


def _report(cases: list[Case], errors: Mapping[str, float], rounds: int) -> Report:
    lines = [_line(what, samples) for what, samples in cases]
    notes = [f"rounds: {rounds}; ms from the act to its effect, seen from outside"]
    for model, error in errors.items():
        notes.append(f"plan: load time of {model} predicted within {error:.0%} (median)")
    return Report(
        benchmark="lifecycle",
        title="How fast a worker ends",
        columns=("what", "median ms", "p99 ms", "max ms"),
        lines=lines,
        notes=notes,
        data={
            "rounds": rounds,
            "rows": [{"what": what, "seconds": summary(samples)} for what, samples in cases],
            "plan_errors": dict(errors),
        },
    )


def _line(what: str, samples: list[float]) -> list[str]:
    p99 = sorted(samples)[min(len(samples) - 1, int(len(samples) * 0.99))]
    return [what, *(f"{1000 * s:.0f}" for s in (statistics.median(samples), p99, max(samples)))]
