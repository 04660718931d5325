"""The JSON of answers that is more than the fleet's own data written out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from flask import Response

from ..states import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Memory, Outcome, Receipt, ReceiptSeconds
    from ..fleet.views import Loaded, WorkerView
    from .control_ports import Facts
    from .control_shapes import LoadAnswer, ProcessMemory, UnloadAnswer


def answer(data: Any, status: int = 200) -> Response:
    """Return a JSON answer; frozen data of the fleet is written as the objects they are."""
    return Response(orjson.dumps(data), status, content_type="application/json")


def loaded_json(loaded: Loaded) -> LoadAnswer:
    """Return the answer to a load that is ready."""
    return {
        "model": loaded.model,
        "version": loaded.version,
        "worker": loaded.worker,
        "state": "ready",
        "already_loaded": loaded.already_loaded,
        "seconds": loaded.seconds,
        "memory": {"host_bytes": loaded.host_bytes, "gpu_bytes": {}},
        "warnings": loaded.warnings,
    }


def receipts_json(receipts: Sequence[Receipt]) -> UnloadAnswer:
    """Return one receipt for all workers of a model; `receipts` is not empty.

    Counts and bytes are sums, seconds the longest, for the workers stop side by side.
    """
    each = [receipt.to_json() for receipt in receipts]
    whole: UnloadAnswer = {
        "model": each[0]["model"],
        "worker": each[0]["worker"],
        "outcome": _worst([receipt.outcome for receipt in receipts]),
        "in_flight_completed": sum(receipt.in_flight_completed for receipt in receipts),
        "in_flight_aborted": sum(receipt.in_flight_aborted for receipt in receipts),
        "freed": {
            "host_bytes": sum(receipt.freed_host for receipt in receipts),
            "gpu_bytes": _sum_by_key([receipt.freed_gpu for receipt in receipts]),
        },
        "verified": all(receipt.verified for receipt in receipts),
        "reason": "; ".join(receipt.reason for receipt in receipts if receipt.reason) or None,
        "seconds": _longest([one["seconds"] for one in each]),
    }
    if len(each) > 1:
        whole["workers"] = each
    return whole


def worker_memory(facts: Facts, worker: WorkerView) -> Memory | None:
    """Measure a worker; None once it ended, when its pid may be another process's."""
    return None if worker.state in ENDED else memory_of(facts, worker.pid)


def memory_of(facts: Facts, pid: int | None) -> Memory | None:
    """Measure a process; None where there is none."""
    return None if pid is None else facts.process_memory(pid)


def memory_json(memory: Memory) -> ProcessMemory:
    """Return the memory of one process."""
    return {"pss_bytes": memory.pss, "uss_bytes": memory.uss, "rss_bytes": memory.rss}


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    severity: tuple[Outcome, ...] = ("drained", "forced", "crashed")
    return max(outcomes, key=severity.index)


def _longest(seconds: Sequence[ReceiptSeconds]) -> ReceiptSeconds:
    return {
        "drain": max(one["drain"] for one in seconds),
        "exit": max(one["exit"] for one in seconds),
        "memory_back": max(one["memory_back"] for one in seconds),
        "total": max(one["total"] for one in seconds),
    }


def _sum_by_key(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    keys = sorted({key for part in parts for key in part})
    return {key: sum(part.get(key, 0) for part in parts) for key in keys}
