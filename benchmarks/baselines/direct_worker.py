"""Baseline "direct": a modelsup worker alone, with no supervisor in front of it."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from modelsup.worker.contract import LaunchSpec

from ..processes import Server

if TYPE_CHECKING:
    from pathlib import Path


def start(
    model_file: Path, folder: Path, image: dict[str, Any] | None = None
) -> tuple[Server, str]:
    """Start a worker for `model_file`; return it and its secret. The caller stops it.

    `folder`, which must be there, takes the launch spec, temporary files and log of the worker.
    """
    temporary = folder / "worker"
    temporary.mkdir()
    spec = LaunchSpec(
        uid="direct-1",
        model=model_file.stem,
        version="1",
        runtime="tensorflow",
        source=str(model_file),
        secret=secrets.token_urlsafe(32),
        temp_dir=str(temporary),
        image=image,
    )
    spec_file = folder / "spec.json"
    spec_file.touch(mode=0o600)
    spec_file.write_text(spec.to_json())
    server = Server("modelsup.worker", str(spec_file), log=folder / "worker.log")
    return server, spec.secret
