"""Make a model's first call before a client does: it is the slow one, and it shows the peak."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .contract import TensorInfo
    from .runtimes.base import Model

logger = logging.getLogger(__name__)


def warm_up(model: Model, rows: int = 1) -> None:
    """Call each signature with zeros, or empty strings, of its smallest shape.

    A signature that takes batches is called with one of `rows` besides.

    A signature that fails is logged and left: its inputs may have rules that zeros do not meet,
    such as a serialised message.
    """
    for name, signature in model.signatures.items():
        try:
            for batch in sorted({1, rows if signature.batchable else 1}):
                model.call(name, {info.name: synthetic(info, batch) for info in signature.inputs})
        except Exception as error:
            logger.warning(
                "the warm-up call of signature %s failed, so the first request will be slower: %s",
                name,
                error,
            )


def synthetic(info: TensorInfo, rows: int = 1) -> np.ndarray[Any, Any]:
    """Return an array that conforms to `info`: free dimensions are 1, a free first one is `rows`.

    An unknown rank is 1.
    """
    sizes = info.shape or ((None,) if info.shape is None else ())
    shape = tuple(
        (1 if place else rows) if size is None else size for place, size in enumerate(sizes)
    )
    if info.dtype == "string":
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtype=info.dtype)
