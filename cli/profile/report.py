"""The profile as sentences and tables, for the terminal and for the page alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ..output import size
from ..tables import Table
from .recommend import MEGABYTE

if TYPE_CHECKING:
    from .results import Advice, Measured, Pool, Profile

STAGE_NAMES: Final = {
    "fork": "after the fork",
    "load": "after the load",
    "first_call": "after the first call",
    "steady": "steady",
    "peak": "peak",
}


def headline(profile: Profile) -> str:
    """Return what was profiled, and on what."""
    found = profile.measured
    device = "cpu" if found.gpu is None else found.gpu.uuid
    version = f"version {found.version}, " if found.version else ""
    return f"{profile.model}: {version}{found.framework or found.runtime}, device {device}"


def stages(profile: Profile) -> Table:
    """Return the memory of one worker, stage by stage."""
    sizes = profile.measured.stages
    rows = tuple((STAGE_NAMES[name], size(sizes[name])) for name in STAGE_NAMES if name in sizes)
    return Table("Private memory of one worker", ("STAGE", "MEMORY"), rows)


def instances(profile: Profile) -> Table:
    """Return the memory against the number of instances: ours, the pool's, and the shared mode."""
    measured, pool = profile.measured, profile.pool
    of_pool = {row.instances: row for row in pool.rows}
    rows = []
    for row in measured.rows:
        other = of_pool.get(row.instances)
        rows.append(
            (
                str(row.instances),
                size(row.before_bytes),
                size(row.after_bytes),
                size(row.peak_bytes),
                size(row.proportional_bytes),
                size(other.before_bytes if other else None),
                size(other.after_bytes if other else None),
            )
        )
    return Table(
        "Host memory against the number of instances",
        ("INSTANCES", "BEFORE CALL", "AFTER CALL", "PEAK", "PSS", "POOL BEFORE", "POOL AFTER"),
        tuple(rows),
        tuple(_notes(measured, pool)),
    )


def _notes(measured: Measured, pool: Pool) -> list[str]:
    shared = measured.shared
    notes = [
        (
            "before and after the first call, and peak: private bytes of the workers; "
            "PSS: with their share of what they have in common"
        ),
        (
            f"shared: {shared.clients} clients on one worker take {size(shared.private_bytes)} "
            f"private, {size(shared.proportional_bytes)} PSS"
        ),
        "pool: all instances in one process; what it takes beside the imported framework",
    ]
    if pool.framework_bytes is not None:
        notes.append(
            f"the imported framework, once: {size(measured.forkservers_bytes)} PSS in the "
            f"forkservers, {size(pool.framework_bytes)} private in the pool's process"
        )
    if pool.reason is not None:
        notes.append(f"the pool was not measured in full: {pool.reason}")
    if measured.gpu is not None:
        notes.append("the pool was measured on the CPU")
    return [*notes, *measured.notes]


def recommendation(profile: Profile) -> list[str]:
    """Return what to give to a load, why, and how many fit."""
    advice, measured = profile.advice, profile.measured
    margin = f"{advice.headroom:.0%} headroom"
    rows = f"with batches of up to {measured.batch} rows"
    took = f"it took at most {size(measured.most_bytes)} {rows}"
    lines = [f"--ram {advice.ram_bytes // MEGABYTE}MB: {took} and {margin}"]
    if advice.gpu_memory_fraction is not None and measured.gpu is not None:
        lines.append(
            f"--gpu-memory-fraction {advice.gpu_memory_fraction:.2f}: "
            f"{size(measured.gpu.used_bytes)} of {size(measured.gpu.total_bytes)} and {margin}"
        )
    else:
        lines.append(f"no --gpu-memory-fraction: {advice.gpu_reason}")
    return [*lines, _fits(advice, measured)]


def _fits(advice: Advice, measured: Measured) -> str:
    budget = f"the budget of {size(measured.budget_bytes)} host memory"
    if advice.limited_by == "gpu":
        budget = "the budget of the GPU"
    return f"with these options {advice.fits} such workers fit into {budget}, nothing else loaded"
