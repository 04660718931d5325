"""What a preparing process does: make the prepared form, write its manifest, say so, and end."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .contract import (
    EXIT_LOAD_FAILED,
    MANIFEST_NAME,
    PREPARED_FORMAT,
    LaunchSpec,
    Manifest,
    PreparedFile,
    StatusMessage,
)
from .reporting import reporting_failures
from .runtimes.base import NotPreparable, Preparer

if TYPE_CHECKING:
    from .reporting import Tell
    from .runtimes.base import Runtime

POLITE: Final = 10  # added to the nice value: workers that serve go first


def prepare(spec: LaunchSpec, runtime: Runtime, tell: Tell) -> int:
    """Prepare the model of `spec`, in a process of its own. Returns an exit code.

    A model that has no prepared form leaves a manifest that says why, and no other file.
    """
    assert spec.prepare_into is not None
    os.nice(POLITE)
    gc.enable()
    folder = Path(spec.prepare_into)
    started = time.monotonic()
    with reporting_failures(spec, tell) as failed:
        refused = _make(spec, runtime, folder)
        write_manifest(folder, spec, runtime.framework, refused)
    if failed:
        return EXIT_LOAD_FAILED
    seconds = {"prepare": time.monotonic() - started}
    tell(StatusMessage(spec.uid, "prepared", seconds=seconds, framework=runtime.framework))
    return 0


def _make(spec: LaunchSpec, runtime: Runtime, folder: Path) -> str:
    """Make the prepared form; return why there is none, or nothing. Raises what `prepare` does."""
    if not isinstance(runtime, Preparer):
        return f"the runtime {spec.runtime} prepares no models"
    try:
        runtime.prepare(spec, folder)
    except NotPreparable as reason:
        for file in folder.iterdir():
            file.unlink()
        return str(reason)
    return ""


def write_manifest(folder: Path, spec: LaunchSpec, framework: str, refused: str) -> None:
    """Put the size and checksum of each file into the manifest, once all are on the disk."""
    files = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
        files[path.name] = PreparedFile(path.stat().st_size, digest)
    manifest = Manifest(
        PREPARED_FORMAT, framework, spec.prepare_for, spec.model, spec.source, files, refused
    )
    with (folder / MANIFEST_NAME).open("w") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
