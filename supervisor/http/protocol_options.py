"""The options of a model that are about its protocols: version labels, and how images are read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ..domain import NAME

if TYPE_CHECKING:
    from .request_bodies import Fields

LARGEST_SIDE: Final = 16384  # pixels
MOST_CLASSES: Final = 1000
LONGEST_PATH: Final = 4096  # characters, as Linux
CHANNELS: Final = 3

_LAYOUT: Final = re.compile("NHWC|NCHW")
_CHANNELS: Final = re.compile("rgb|bgr|gray")
_RESIZE: Final = re.compile("nearest|bilinear|bicubic")
_DTYPE: Final = re.compile(r"u?int(8|16|32|64)|b?float16|float(32|64)")
_PATH: Final = re.compile(rf"/[^\x00]{{0,{LONGEST_PATH}}}", re.DOTALL)


def labels_of(fields: Fields) -> dict[str, str] | None:
    """Take `labels`: the version that each label stands for."""
    return fields.texts("labels", NAME, "an object of labels and versions, as {'stable': '2'}")


def classes_of(fields: Fields) -> str | None:
    """Take `classes`: a file with one name a line."""
    return fields.pattern("classes", _PATH, "an absolute path")


def image_of(fields: Fields) -> dict[str, Any] | None:
    """Take `image`: what is done to an image before the model gets it; only what is given."""
    inner = fields.inner("image")
    if inner is None:
        return None
    given = {
        "size": inner.numbers("size", (2,), lowest=1, highest=LARGEST_SIDE, whole=True),
        "layout": inner.pattern("layout", _LAYOUT, "'NHWC' or 'NCHW'"),
        "channels": inner.pattern("channels", _CHANNELS, "'rgb', 'bgr' or 'gray'"),
        "dtype": inner.pattern("dtype", _DTYPE, "a type of numbers, as 'float32'"),
        "resize": inner.pattern("resize", _RESIZE, "'nearest', 'bilinear' or 'bicubic'"),
        "scale": inner.number("scale"),
        "mean": inner.numbers("mean", (1, CHANNELS)),
        "std": inner.numbers("std", (1, CHANNELS), lowest=1e-12),
        "top_k": inner.count("top_k", 1, MOST_CLASSES),
    }
    inner.done()
    return {name: value for name, value in given.items() if value is not None}
