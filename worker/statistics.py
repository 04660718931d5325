"""What a worker's model has done so far, in the form of V2's statistics extension."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

MOST_SIZES: Final = 256  # batch sizes that are told apart; a client may invent any number


class Execution(NamedTuple):
    """One call of the model that succeeded. Times in seconds."""

    rows: int
    joining: float  # putting the requests' inputs together
    computing: float
    cutting: float  # taking the outputs apart


@dataclass(slots=True)
class Duration:
    """How often something was done, and the seconds that it took in all."""

    count: int = 0
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one more."""
        self.count += 1
        self.seconds += seconds

    def to_v2(self) -> dict[str, int]:
        """Return V2's form: nanoseconds."""
        return {"count": self.count, "ns": round(self.seconds * 1e9)}


@dataclass(slots=True)
class Compute:
    """The three steps of a call."""

    joining: Duration = field(default_factory=Duration)
    computing: Duration = field(default_factory=Duration)
    cutting: Duration = field(default_factory=Duration)

    def add(self, execution: Execution) -> None:
        """Count one call."""
        self.joining.add(execution.joining)
        self.computing.add(execution.computing)
        self.cutting.add(execution.cutting)

    def to_v2(self) -> dict[str, dict[str, int]]:
        """Return V2's form."""
        return {
            "compute_input": self.joining.to_v2(),
            "compute_infer": self.computing.to_v2(),
            "compute_output": self.cutting.to_v2(),
        }


@dataclass(slots=True)
class Statistics:
    """Counts since the worker began to serve. A request without rows counts as one row."""

    last_answer: float = 0.0  # UNIX seconds
    rows: int = 0  # answered
    calls: int = 0  # of the model, failed ones and repetitions included
    success: Duration = field(default_factory=Duration)  # requests, from queue to answer
    fail: Duration = field(default_factory=Duration)
    queue: Duration = field(default_factory=Duration)
    compute: Compute = field(default_factory=Compute)
    by_size: dict[int, Compute] = field(default_factory=dict)  # by rows of a call

    def executed(self, execution: Execution) -> None:
        """Count a call that succeeded."""
        self.last_answer = time.time()
        self.compute.add(execution)
        size = self.by_size.get(execution.rows)
        if size is None:
            if len(self.by_size) >= MOST_SIZES:
                return
            size = self.by_size[execution.rows] = Compute()
        size.add(execution)

    def answered(self, rows: int, queued: float, total: float, *, failed: bool) -> None:
        """Count a request that has its outcome; times in seconds."""
        self.queue.add(queued)
        if failed:
            self.fail.add(total)
            return
        self.rows += rows
        self.success.add(total)

    def to_v2(self, model: str, version: str, waiting: int) -> dict[str, Any]:
        """Return V2's statistics of one model, and how many requests wait for a call."""
        return {
            "name": model,
            "version": version,
            "last_inference": round(self.last_answer * 1000),
            "inference_count": self.rows,
            "execution_count": self.compute.computing.count,
            "inference_stats": {
                "success": self.success.to_v2(),
                "fail": self.fail.to_v2(),
                "queue": self.queue.to_v2(),
                **self.compute.to_v2(),
                "cache_hit": Duration().to_v2(),
                "cache_miss": Duration().to_v2(),
            },
            "batch_stats": [
                {"batch_size": rows, **size.to_v2()} for rows, size in sorted(self.by_size.items())
            ],
            "waiting": waiting,
        }
