"""How a worker's charge is written, wherever workers are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import size

if TYPE_CHECKING:
    from modelsup.client import WorkerInfo


def charged(worker: WorkerInfo) -> str:
    """Return what the budget counts for a worker: "~142 MB, GPU ~2.0 GB"; "~": estimated."""
    mark = "~" if worker.estimated else ""
    on_gpus = sum(count for name, count in worker.charges.items() if name != "host")
    text = f"{mark}{size(worker.charges.get('host'))}"
    return f"{text}, GPU {mark}{size(on_gpus)}" if on_gpus else text
