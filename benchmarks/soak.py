"""Whether anything grows over many loads and unloads: memory, descriptors, threads, zombies."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
from modelsup.client import Client

from examples.local_supervisor import local_supervisor
from examples.tree_memory import tree_memory

from .report import Report, progress

if TYPE_CHECKING:
    from pathlib import Path

MB = 10**6  # bytes
WARM_UP = 20  # cycles that are not counted: caches fill, imports happen
STEPS = 10  # lines of progress per kind of model


@dataclass(frozen=True, slots=True)
class State:
    """The supervisor and its forkservers at one moment. Sizes in bytes."""

    anonymous: int  # without page cache, whose shares move with unrelated programs
    descriptors: int
    threads: int
    zombies: int
    processes: int


def run(model: Path, echo_cycles: int, keras_cycles: int) -> Report:
    """Load and unload an echo model and a Keras model, one after the other."""
    with (
        local_supervisor("--preload", "echo,tensorflow") as supervisor,
        Client(supervisor.url) as client,
    ):
        rows = [
            _soak(client, supervisor.pid, "echo", None, echo_cycles),
            _soak(client, supervisor.pid, "tensorflow", str(model), keras_cycles),
        ]
    return Report(
        benchmark="soak",
        title="Growth of supervisor and forkservers over loads and unloads",
        columns=("model", "cycles", "seconds each", "MB", "descriptors", "threads", "zombies"),
        lines=[_line(row) for row in rows],
        notes=[
            f"anonymous memory and counts, after the last cycle less after cycle {WARM_UP}",
            "zombies: as they are at the end",
        ],
        data={"rows": rows},
    )


def _line(row: dict[str, Any]) -> list[str]:
    growth = row["growth"]
    return [
        row["runtime"],
        str(row["cycles"]),
        f"{row['seconds_per_cycle']:.3f}",
        f"{growth['anonymous'] / MB:.1f}",
        f"{growth['descriptors']:+d}",
        f"{growth['threads']:+d}",
        str(row["zombies"]),
    ]


def _soak(
    client: Client, pid: int, runtime: str, source: str | None, cycles: int
) -> dict[str, Any]:
    _cycle(client, runtime, source, WARM_UP)
    before = _state(pid)
    started = time.perf_counter()
    done = 0
    for step in range(1, STEPS + 1):
        until = cycles * step // STEPS
        _cycle(client, runtime, source, until - done)
        done = until
        progress(f"soak: {runtime}, {done} of {cycles} cycles")
    seconds = time.perf_counter() - started
    after = _state(pid)
    return {
        "runtime": runtime,
        "cycles": cycles,
        "seconds_per_cycle": seconds / max(1, cycles),
        "growth": {
            "anonymous": after.anonymous - before.anonymous,
            "descriptors": after.descriptors - before.descriptors,
            "threads": after.threads - before.threads,
            "processes": after.processes - before.processes,
        },
        "zombies": after.zombies,
    }


def _cycle(client: Client, runtime: str, source: str | None, cycles: int) -> None:
    for _ in range(cycles):
        client.load("soak", source, runtime=runtime)
        client.unload("soak")


def _state(pid: int) -> State:
    supervisor = psutil.Process(pid)
    tree = [supervisor, *supervisor.children(recursive=True)]
    alive = [p for p in tree if p.status() != psutil.STATUS_ZOMBIE]
    return State(
        anonymous=tree_memory([pid]).anonymous,
        descriptors=sum(p.num_fds() for p in alive),
        threads=sum(p.num_threads() for p in alive),
        zombies=len(tree) - len(alive),
        processes=len(alive),
    )
