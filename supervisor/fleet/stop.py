"""The stop of one worker: what was wished for, how it went, and the receipt."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..domain import Exit, Receipt

if TYPE_CHECKING:
    from ..domain import Outcome
    from .ports import Reclaimed


@dataclass(slots=True)
class Stop:
    """A wish to stop, and what became of it step by step. Times are monotonic seconds."""

    drain: float  # seconds to drain for, at most
    force: bool
    started: float
    completed_before: int  # requests
    running_before: int  # requests, in flight

    drained: float = 0.0
    exited: float = 0.0
    back: float = 0.0
    freed: int = 0  # bytes of host memory
    aborted: int = 0  # requests, in flight when the drain was over
    crashed: bool = False  # it ended before it was told to
    killed: bool = False  # it took a SIGKILL
    end: Exit = field(default_factory=Exit)
    gpu: Reclaimed | None = None

    def hasten(self, drain: float, *, force: bool) -> None:
        """Take another wish; the shorter time to drain wins."""
        self.drain = min(self.drain, drain)
        self.force = self.force or force

    def receipt(self, model: str, worker: str, device: str | None, completed: int) -> Receipt:
        """Return the receipt; `completed` counts the requests of the worker's whole life."""
        completed -= self.completed_before
        outcome: Outcome = "drained"
        aborted = self.aborted
        # Its connections end before its process does: a crash may look like the end of a drain.
        if self.crashed or not (self.killed or _is_orderly(self.end)):
            outcome = "crashed"
            aborted = self.running_before - completed
        elif self.killed or aborted or self.force:
            outcome = "forced"
        back = self.gpu is None or self.gpu.verdict == "back"
        return Receipt(
            model=model,
            worker=worker,
            outcome=outcome,
            in_flight_completed=completed,
            in_flight_aborted=aborted,
            freed_host=self.freed,
            freed_gpu={device: self.gpu.freed} if self.gpu and device else {},
            verified=back,
            reason=None if self.gpu is None or back else self.gpu.reason,
            drain=self.drained - self.started,
            exit=self.exited - self.drained,
            memory_back=self.back - self.exited,
            total=self.back - self.started,
        )


def _is_orderly(end: Exit) -> bool:
    """Return whether a process may end like this after SIGTERM; an unknown end counts as one."""
    return end.signal in {None, signal.SIGTERM} and not end.code


def about(receipt: Receipt) -> dict[str, object]:
    """Return the facts of a receipt for the event that tells of it."""
    return {
        "outcome": receipt.outcome,
        "freed_bytes": receipt.freed_host,
        "gpu_freed_bytes": sum(receipt.freed_gpu.values()) or None,
        "verified": receipt.verified,
        "reason": receipt.reason,
        "aborted": receipt.in_flight_aborted or None,
        "seconds": round(receipt.total, 3),
    }
