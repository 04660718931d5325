"""The JSON of answers that is more than the fleet's own data written out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import orjson
from flask import Response

from ..domain import Receipt
from ..states import ENDED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..domain import Memory
    from ..fleet.views import Loaded, Scaled, WorkerView
    from .control_ports import Facts
    from .control_shapes import LoadAnswer, ProcessMemory, ScaleAnswer, UnloadAnswer


def answer(data: Any, status: int = 200) -> Response:
    """Return a JSON answer; frozen data of the fleet is written as the objects they are."""
    return Response(orjson.dumps(data), status, content_type="application/json")


def loaded_json(loaded: Loaded) -> LoadAnswer:
    """Return the answer to a load that is ready."""
    return {
        "model": loaded.model,
        "version": loaded.version,
        "worker": loaded.worker,
        "workers": loaded.workers,
        "state": "ready",
        "already_loaded": loaded.already_loaded,
        "seconds": loaded.seconds,
        "memory": {"host_bytes": loaded.host_bytes, "gpu_bytes": {}},
        "warnings": loaded.warnings,
    }


def receipts_json(receipts: Sequence[Receipt]) -> UnloadAnswer:
    """Return one receipt for all workers of a model; `receipts` is not empty."""
    whole = cast("UnloadAnswer", Receipt.together(receipts).to_json())
    if len(receipts) > 1:
        whole["workers"] = [receipt.to_json() for receipt in receipts]
    return whole


def scaled_json(scaled: Scaled) -> ScaleAnswer:
    """Return the answer to a change of the number of a model's workers."""
    return {
        "model": scaled.model,
        "replicas": scaled.replicas,
        "workers": scaled.workers,
        "receipt": receipts_json(scaled.receipts) if scaled.receipts else None,
        "seconds": scaled.seconds,
    }


def worker_memory(facts: Facts, worker: WorkerView) -> Memory | None:
    """Measure a worker; None once it ended, when its pid may be another process's."""
    return None if worker.state in ENDED else memory_of(facts, worker.pid)


def memory_of(facts: Facts, pid: int | None) -> Memory | None:
    """Measure a process; None where there is none."""
    return None if pid is None else facts.process_memory(pid)


def memory_json(memory: Memory) -> ProcessMemory:
    """Return the memory of one process."""
    return {"pss_bytes": memory.pss, "uss_bytes": memory.uss, "rss_bytes": memory.rss}
