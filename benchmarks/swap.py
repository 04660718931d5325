"""How long a client waits for another model: unload A, load B, first right answer of B."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .report import Report, progress, summary
from .sides import BareFork, Cold, InProcess, Modelsup, Side

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from .workload import Workload

# What a model is swapped with. A small one with another of its kind, an image model with the
# other image model: unloading a large model is part of what a swap to one costs.
PARTNERS = {"tiny": "tiny", "mobilenet": "resnet50", "resnet50": "mobilenet"}

SIDES = (Modelsup.name, BareFork.name, Modelsup.unprepared, InProcess.name, Cold.name)

Samples = dict[tuple[str, str], dict[str, list[float]]]  # (model, side) -> "wall", "cpu": seconds


def needed(models: Sequence[str]) -> list[str]:
    """Return the models to make ready: those measured and their partners."""
    return list(dict.fromkeys(name for model in models for name in (model, PARTNERS[model])))


def run(
    models: Sequence[str], workloads: Mapping[str, Workload], rounds: int, folder: Path
) -> Report:
    """Measure all sides, interleaved round by round. One round before the first is not counted."""
    samples: Samples = defaultdict(lambda: {"wall": [], "cpu": []})
    with ExitStack() as stack:
        sides = _start(workloads, folder, stack)
        for first, second in _pairs(models):
            pair = (workloads[first], workloads[second])
            for side in sides:
                _swap(side, None, f"{first}-a", pair[0])
            for number in range(rounds + 1):
                for side in sides:
                    progress(f"swap: {first} and {second}, round {number}, {side.name}")
                    there = _swap(side, f"{first}-a", f"{second}-b", pair[1])
                    back = _swap(side, f"{second}-b", f"{first}-a", pair[0])
                    if number:
                        _add(samples[second, side.name], there)
                        _add(samples[first, side.name], back)
            for side in sides:
                side.unload(f"{first}-a")
    return _report(models, samples, rounds)


def _start(workloads: Mapping[str, Workload], folder: Path, stack: ExitStack) -> list[Side]:
    """Start all sides; what is prepared is so before the first swap."""
    modelsup = Modelsup(folder / "cache")
    stack.callback(modelsup.stop)
    forms = {}
    for name, workload in workloads.items():
        progress(f"swap: prepare {name}")
        forms[name] = modelsup.prepare(workload)
    sides: list[Side] = [modelsup]
    starts: tuple[Callable[[], Side], ...] = (
        lambda: BareFork(forms, folder),
        lambda: Modelsup(folder / "cache", prepared=False),
        lambda: InProcess(folder),
        lambda: Cold(folder),
    )
    for start in starts:
        side = start()
        stack.callback(side.stop)
        progress(f"swap: started {side.name}")
        sides.append(side)
    return sides


def _pairs(models: Sequence[str]) -> list[tuple[str, str]]:
    """Return each pair of partners once."""
    pairs = {frozenset((model, PARTNERS[model])): (model, PARTNERS[model]) for model in models}
    return list(pairs.values())


def _swap(side: Side, old: str | None, new: str, workload: Workload) -> tuple[float, float]:
    """Swap until the first right answer. Returns wall and CPU seconds."""
    cpu = side.cpu_seconds()
    started = time.perf_counter()
    side.swap(old, new, workload)
    answer = side.infer(new, workload)
    elapsed = time.perf_counter() - started
    workload.check(side.name, answer)
    return elapsed, side.cpu_seconds() - cpu


def _add(samples: dict[str, list[float]], measured: tuple[float, float]) -> None:
    samples["wall"].append(measured[0])
    samples["cpu"].append(measured[1])


def _report(models: Sequence[str], samples: Samples, rounds: int) -> Report:
    lines, rows, ratios = [], [], {}
    for model in models:
        medians = {}
        for side in SIDES:
            wall, cpu = summary(samples[model, side]["wall"]), summary(samples[model, side]["cpu"])
            medians[side] = wall["median"]
            rows.append({"model": model, "side": side, "wall_seconds": wall, "cpu_seconds": cpu})
            lines.append(_line(model, side, wall, cpu, wall["median"] / medians[Modelsup.name]))
        ratios[model] = {
            f"{side}_over_modelsup": medians[side] / medians[Modelsup.name]
            for side in (Cold.name, InProcess.name, Modelsup.unprepared)
        } | {"modelsup_over_bare": medians[Modelsup.name] / medians[BareFork.name]}
    return Report(
        benchmark="swap",
        title="Swap: unload A, load B, first right answer of B",
        columns=("model", "side", "median s", "min .. max s", "CPU s", "times modelsup"),
        lines=lines,
        notes=[f"rounds: {rounds}, sides interleaved; {_partners(models)}"],
        data={"settings": {"rounds": rounds}, "rows": rows, "ratios": ratios},
    )


def _line(
    model: str, side: str, wall: Mapping[str, Any], cpu: Mapping[str, Any], ratio: float
) -> list[str]:
    spread = f"{wall['min']:.3f} .. {wall['max']:.3f}"
    return [model, side, f"{wall['median']:.3f}", spread, f"{cpu['median']:.2f}", f"{ratio:.1f}"]


def _partners(models: Sequence[str]) -> str:
    pairs = ((model, PARTNERS[model]) for model in models)
    return ", ".join(f"{new} in place of {'another' if old == new else old}" for new, old in pairs)
