"""Receipts as sentences: what an unload gave back, for the commands that end a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .output import seconds, size

if TYPE_CHECKING:
    from modelsup.client import Receipt


def receipt_text(receipt: Receipt) -> str:
    """Return "NAME: freed 142 MB host memory in 0.03 s, verified", and what was unusual."""
    freed = f"{size(receipt.freed.host_bytes)} host memory"
    on_gpus = sum(receipt.freed.gpu_bytes.values())
    if on_gpus:
        freed += f" and {size(on_gpus)} GPU memory"
    parts = [f"{receipt.model}: freed {freed} in {seconds(receipt.seconds.total)}"]
    why = receipt.reason or "the memory may not be back"
    parts.append("verified" if receipt.verified else f"NOT verified: {why}")
    if receipt.outcome != "drained":
        parts.append(receipt.outcome)
    if receipt.in_flight_aborted:
        parts.append(f"{receipt.in_flight_aborted} running predictions aborted")
    return ", ".join(parts)


def previous_text(model: str | None, receipt: Receipt | None, kept: str | None) -> list[str]:
    """Return the lines about the model that a client let go of: its receipt, or why it stays."""
    if receipt is not None:
        return [receipt_text(receipt)]
    if kept is not None and model is not None:
        return [f"{model} stays loaded: {kept}"]
    return []
