"""Turn what TensorFlow, Keras and h5py raise during a load into a cause and a short message."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import tensorflow as tf

from .base import LoadFailed

if TYPE_CHECKING:
    from pathlib import Path

# Keras and TensorFlow have no error class of their own for these, so the text must do.
UNKNOWN_OBJECT: Final = re.compile(r"(?:Could not locate|Unknown) (\w+):? '?(\w+)'?")
UNKNOWN_OP: Final = re.compile(r"Op type not registered '([^']+)'")
NESTED: Final = "Exception encountered: "  # Keras puts the real reason behind a dump of the config
LONGEST: Final = 300  # characters of a foreign message that are passed on


def explain(error: Exception, path: Path, *, on_gpu: bool) -> LoadFailed:
    """Return the LoadFailed that says in words why `path` could not be loaded."""
    if isinstance(error, LoadFailed):
        return error
    if isinstance(error, tf.errors.ResourceExhaustedError | MemoryError):
        return _out_of_memory(error, path, on_gpu=on_gpu)
    reason = str(error).rpartition(NESTED)[2]
    known = _known_reason(reason)
    return LoadFailed("bad_model", f"{path} {known or f'could not be loaded: {_short(error)}.'}")


def _known_reason(reason: str) -> str | None:
    """Return the end of a sentence that starts with the path, or None for an unknown reason."""
    if match := UNKNOWN_OP.search(reason):
        return (
            f"uses the operation {match[1]}, which TensorFlow {tf.__version__} does not have. "
            "Custom operations are not supported."
        )
    if match := UNKNOWN_OBJECT.search(reason):
        return (
            f"uses the {match[1]} {match[2]}, which is not part of Keras. Registered custom "
            "objects are not supported: export the model as a SavedModel."
        )
    if "`Lambda` layer" in reason:
        return (
            "has a Lambda layer: Python code inside the file, which may do anything, so Keras's "
            "safe mode refuses it. Use ordinary layers in its place, or export a SavedModel."
        )
    if "safe_mode" in reason:
        return (
            "holds an object that could run code of its own, so Keras's safe mode refuses it. "
            "Export the model as a SavedModel."
        )
    if "Error parsing message" in reason:
        return "is damaged or truncated. Export or copy the model again."
    if "No model config found" in reason:
        return "holds weights without a model. Save the whole model with `model.save`."
    return None


def _out_of_memory(error: Exception, path: Path, *, on_gpu: bool) -> LoadFailed:
    if on_gpu and not isinstance(error, MemoryError):
        return LoadFailed(
            "cuda_oom",
            f"{path} does not fit in the GPU memory of this worker. "
            f"Load it with a larger --gpu-memory. ({_short(error)})",
        )
    return LoadFailed(
        "host_oom",
        f"The host has too little memory to load {path}. "
        f"Unload another model or raise its limit. ({_short(error)})",
    )


def _short(error: Exception) -> str:
    """Return the kind of an error and the first line of its reason, of bounded length."""
    reason = str(error).rpartition(NESTED)[2]
    line = next((line.strip() for line in reason.splitlines() if line.strip()), "no reason given")
    if len(line) > LONGEST:
        line = line[:LONGEST] + "..."
    return f"{type(error).__name__}: {line.rstrip('.')}"
