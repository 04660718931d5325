"""What to give to a load, from what was measured: pure arithmetic. Sizes are in bytes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from .results import Advice

if TYPE_CHECKING:
    from .results import Gpu

HEADROOM: Final = 0.25  # for requests while it serves, and for fragmentation
MEGABYTE: Final = 10**6
GPU_STEP: Final = 100  # fractions are rounded up to whole hundredths
# Beside its cap a worker is charged with the context that the driver makes for it.
GPU_CONTEXT: Final = 450 * MEGABYTE  # the supervisor's default


def recommend(most: int, budget: int, gpu: Gpu | None) -> Advice:
    """Return the advice for one worker that took at most `most` bytes of host memory.

    `budget` is the host memory that all workers may take together.
    """
    ram = math.ceil(with_headroom(max(most, 1)) / MEGABYTE) * MEGABYTE
    fraction, reason = _fraction(gpu)
    fits, limited_by = max(0, budget) // ram, "host"
    if gpu is not None and fraction is not None:
        share = gpu.total_bytes if gpu.budget_bytes is None else gpu.budget_bytes
        on_gpu = int(share // (fraction * gpu.total_bytes + GPU_CONTEXT))
        if on_gpu < fits:
            fits, limited_by = on_gpu, "gpu"
    return Advice(ram, HEADROOM, fraction, reason, fits, limited_by)


def with_headroom(size: float) -> float:
    """Return a size with the headroom added."""
    return size * (1 + HEADROOM)


def _fraction(gpu: Gpu | None) -> tuple[float | None, str | None]:
    """Return the share of the GPU's memory to ask for, or why there is none."""
    if gpu is None:
        return None, "the model ran on the CPU: no GPU memory to give"
    if gpu.used_bytes is None:
        return None, f"the driver does not tell what a worker takes of GPU {gpu.uuid}"
    steps = math.ceil(with_headroom(gpu.used_bytes) / gpu.total_bytes * GPU_STEP)
    return min(max(steps, 1), GPU_STEP) / GPU_STEP, None


def peak_of_all(steady: list[int], peak: list[int]) -> int:
    """Return the most that workers took together, which were loaded one after the other.

    While one was at its peak, those before it were at their steady size.
    """
    return max((sum(steady[:i]) + most for i, most in enumerate(peak)), default=0)
