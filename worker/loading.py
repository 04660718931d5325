"""Load a model from its prepared form where there is one that works, else from its source."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .runtimes.base import Preparer

if TYPE_CHECKING:
    from collections.abc import Callable

    from .contract import LaunchSpec
    from .runtimes.base import Model, Runtime

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model and how it came. `prepared_error`: why the prepared form was not taken."""

    model: Model
    preparable: bool
    from_prepared: bool = False
    prepared_error: str = ""


def load_best(spec: LaunchSpec, runtime: Runtime, on_device_open: Callable[[], None]) -> Loaded:
    """Load the model of `spec`, whichever way works. Raises as `Runtime.load` does."""
    error = ""
    if spec.prepared is not None and isinstance(runtime, Preparer):
        try:
            model = runtime.load_prepared(spec, Path(spec.prepared), on_device_open)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"
            logger.warning("the prepared form was not loaded, so the model is: %s", error)
        else:
            return Loaded(model, preparable=False, from_prepared=True)
    model = runtime.load(spec, on_device_open)
    preparable = isinstance(runtime, Preparer) and runtime.is_preparable(model)
    return Loaded(model, preparable, prepared_error=error)
