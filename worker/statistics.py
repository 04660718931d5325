"""What a worker's model has done so far, in the form of V2's statistics extension.

Counting is part of each request, so it is plain sums; sentences are made when somebody asks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

MOST_SIZES: Final = 256  # batch sizes that are told apart; a client may invent any number
OTHER: Final = -1  # stands for all further sizes

Told = dict[str, Any]


@dataclass(slots=True)
class Compute:
    """Calls of the model that succeeded, and the seconds of their three steps."""

    count: int = 0
    joining: float = 0.0  # putting the requests' inputs together
    computing: float = 0.0
    cutting: float = 0.0  # taking the outputs apart

    def to_v2(self) -> Told:
        """Return V2's form."""
        return {
            "compute_input": _duration(self.count, self.joining),
            "compute_infer": _duration(self.count, self.computing),
            "compute_output": _duration(self.count, self.cutting),
        }


@dataclass(slots=True)
class Statistics:
    """Counts since the worker began to serve. A request without rows counts as one row."""

    calls: int = 0  # of the model, failed ones and repetitions included
    rows: int = 0  # answered
    succeeded: int = 0  # requests
    failed: int = 0
    success_seconds: float = 0.0  # from queue to answer
    fail_seconds: float = 0.0
    queue_seconds: float = 0.0  # of both
    last_call: float = 0.0  # UNIX seconds; of one that succeeded
    by_size: dict[int, Compute] = field(default_factory=dict)  # by rows of a call

    def executed(self, rows: int, joining: float, computing: float, cutting: float) -> None:
        """Count a call that succeeded; times in seconds."""
        size = self.by_size.get(rows)
        if size is None:
            if len(self.by_size) >= MOST_SIZES:
                rows = OTHER
            size = self.by_size.setdefault(rows, Compute())
        size.count += 1
        size.joining += joining
        size.computing += computing
        size.cutting += cutting
        self.last_call = time.time()

    @property
    def compute(self) -> Compute:
        """All calls that succeeded."""
        sizes = self.by_size.values()
        return Compute(
            sum(size.count for size in sizes),
            sum(size.joining for size in sizes),
            sum(size.computing for size in sizes),
            sum(size.cutting for size in sizes),
        )

    def to_v2(self, model: str, version: str, waiting: int) -> Told:
        """Return V2's statistics of one model, and how many requests wait for a call."""
        compute = self.compute
        sizes = sorted(self.by_size.items())
        return {
            "name": model,
            "version": version,
            "last_inference": round(self.last_call * 1000),
            "inference_count": self.rows,
            "execution_count": compute.count,
            "inference_stats": {
                "success": _duration(self.succeeded, self.success_seconds),
                "fail": _duration(self.failed, self.fail_seconds),
                "queue": _duration(self.succeeded + self.failed, self.queue_seconds),
                **compute.to_v2(),
                "cache_hit": _duration(0, 0),
                "cache_miss": _duration(0, 0),
            },
            "batch_stats": [
                {"batch_size": rows, **size.to_v2()} for rows, size in sizes if rows != OTHER
            ],
            "waiting": waiting,
        }


def _duration(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
