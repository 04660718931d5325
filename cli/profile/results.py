"""What a profile holds, in the form that `--json` prints. Sizes are bytes of host memory."""

from __future__ import annotations

from dataclasses import dataclass

import click


class ProfileFailed(click.ClickException):
    """A profile that cannot be made. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Row:
    """So many private workers. `before` and `after`: the first call of each.

    `private_bytes` is what comes back when they end; `proportional_bytes` adds a fair share of
    what they have in common with others.
    """

    instances: int
    before_bytes: int
    after_bytes: int
    peak_bytes: int
    private_bytes: int
    proportional_bytes: int


@dataclass(frozen=True, slots=True)
class SharedRow:
    """So many clients on one worker."""

    clients: int
    private_bytes: int
    proportional_bytes: int


@dataclass(frozen=True, slots=True)
class PoolRow:
    """So many instances in one process: what it takes beside the imported framework."""

    instances: int
    before_bytes: int
    after_bytes: int
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class Pool:
    """One process for all instances. `reason` says why rows are missing."""

    framework_bytes: int | None = None
    rows: tuple[PoolRow, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU that the model was on. `used_bytes` is that of one worker, its context included.

    `used_bytes` is None where the driver does not tell.
    """

    uuid: str
    total_bytes: int
    budget_bytes: int | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What the supervisor's workers took. `stages`: private bytes of one worker by stage.

    `source` is what was loaded: of a folder of versions, the folder of `version`.
    `batch` is the number of rows in the largest call that it was measured with.
    `most_bytes` is the most that one worker took, at its peak or later, while it serves.
    `forkservers_bytes` is the proportional size of the processes that workers are forked from.
    """

    source: str | None
    version: str | None
    runtime: str
    framework: str | None
    stages: dict[str, int]
    most_bytes: int
    rows: tuple[Row, ...]
    shared: SharedRow
    gpu: Gpu | None
    budget_bytes: int
    forkservers_bytes: int
    batch: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """Options for a load, and how many such workers fit at once.

    `headroom` is the share that was added to what was measured. `gpu_memory_fraction` is None
    without a GPU, or where its use is not known; `gpu_reason` says which. `limited_by` is "host"
    or "gpu".
    """

    ram_bytes: int
    headroom: float
    gpu_memory_fraction: float | None
    gpu_reason: str | None
    fits: int
    limited_by: str


@dataclass(frozen=True, slots=True)
class Profile:
    """All of it."""

    model: str
    measured: Measured
    pool: Pool
    advice: Advice
