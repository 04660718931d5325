"""Users arrive at an application in steps; what they see and what the application then holds."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.loadgen import measure
from benchmarks.processes import BenchmarkError

from ..tree_memory import NOTHING, ProcessMemory, tree_memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.loadgen import Load

STEPS = (1, 10, 100)  # users
SAMPLE_SECONDS = 0.5  # between two looks at the memory; each costs milliseconds of a core


@dataclass(frozen=True)
class Step:
    """One step of one application. `load` is None at rest, where there is no user.

    `memory` is the most that the trees of processes held at one time during the step.
    """

    application: str
    users: int
    memory: ProcessMemory
    load: Load | None


class Peak:
    """The largest memory seen so far, by its proportional set size."""

    def __init__(self) -> None:
        self.memory = NOTHING

    def look(self, roots: Sequence[int]) -> None:
        """Compare with what the trees below `roots` hold now."""
        self.memory = max(self.memory, tree_memory(roots), key=lambda memory: memory.pss)


@contextmanager
def peak_memory(roots: Sequence[int]) -> Iterator[Peak]:
    """Look at the memory of the trees below `roots` now and then, and at the block's end."""
    peak = Peak()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(SAMPLE_SECONDS):
            peak.look(roots)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
        peak.look(roots)


def at_rest(application: str, roots: Sequence[int]) -> Step:
    """Return what the application holds before its first user."""
    return Step(application, 0, tree_memory(roots), None)


def arrive(
    application: str, url: str, image: bytes, users: int, seconds: float, roots: Sequence[int]
) -> Step:
    """Let `users` users send the image again and again for `seconds`.

    Raises BenchmarkError where no answer came within that time.
    """
    headers = {"Content-Type": "application/octet-stream"}
    with peak_memory(roots) as peak:
        load = measure(f"{url}/classify", headers, image, users, seconds)
    if not load.requests:
        raise BenchmarkError(
            f"{application} answered none of {users} users within {seconds:g} s "
            f"and gave {load.errors} errors; give it more time with --seconds"
        )
    return Step(application, users, peak.memory, load)
