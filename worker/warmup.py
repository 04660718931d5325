"""Make a model's first call before a client does: it is the slow one, and it shows the peak."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from .contract import TensorInfo
    from .runtimes.base import Model

logger = logging.getLogger(__name__)


def warm_up(model: Model) -> None:
    """Call each signature once with zeros, or empty strings, of its smallest shape.

    A signature that fails is logged and left: its inputs may have rules that zeros do not meet,
    such as a serialised message.
    """
    for name, signature in model.signatures.items():
        try:
            model.call(name, {info.name: synthetic(info) for info in signature.inputs})
        except Exception as error:
            logger.warning(
                "the warm-up call of signature %s failed, so the first request will be slower: %s",
                name,
                error,
            )


def synthetic(info: TensorInfo) -> np.ndarray[Any, Any]:
    """Return an array that conforms to `info`: each free dimension is 1, an unknown rank is 1."""
    shape = (
        (1,) if info.shape is None else tuple(1 if size is None else size for size in info.shape)
    )
    if info.dtype == "string":
        return np.full(shape, b"", dtype=object)
    return np.zeros(shape, dtype=info.dtype)
