"""JPEG and PNG bodies as the input of a model, by the preprocessing that the model declares."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from . import npy
from .base import BadInput, Body, Request, TooLarge, UnsupportedBody
from .dtypes import family, numpy_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..contract import Signature

    Array = np.ndarray[Any, Any]
    Size = tuple[int | None, int | None]

MEDIA_TYPES: Final = tuple(
    b"image/" + kind for kind in (b"jpeg", b"jpg", b"png", b"webp", b"gif", b"bmp", b"tiff")
)
MOST_PIXELS: Final = 50_000_000  # of an image; a small file can hold a huge one

_READ: Final = ("JPEG", "PNG")
_RANK: Final = 3  # of one image


@dataclass(frozen=True, slots=True)
class ImageInput:
    """How an image becomes the only input of `signature`.

    value = (pixel * scale - mean) / std, with the pixel from 0 to 255, for each channel.
    """

    signature: Signature
    size: Size  # height, width; None: as the image has it
    channels: str  # "rgb", "bgr" or "gray"
    by_channel: bool  # NCHW rather than NHWC
    resize: str
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def decode(self, body: Body) -> Request:
        """Return the request in an image's file. Raises BadInput."""
        info = self.signature.inputs[0]
        array = self._pixels(body)
        if self.channels == "bgr":
            array = array[..., ::-1]
        array = self._values(array, numpy_dtype(info.dtype))
        if self.by_channel:
            array = array.transpose(2, 0, 1)
        if info.shape is not None and len(info.shape) > _RANK:
            array = array[None]
        return npy.request_of(self.signature, np.ascontiguousarray(array))

    def _pixels(self, body: Body) -> Array:
        """Return the pixels, uint8, of shape [height, width, channels]."""
        try:
            from PIL import Image
        except ImportError:
            raise UnsupportedBody(
                "images need the package Pillow in the worker: pip install 'modelsup[images]'"
            ) from None
        Image.MAX_IMAGE_PIXELS = None  # it would warn; the limit here is an error
        try:
            file = Image.open(io.BytesIO(body), formats=_READ)
        except OSError:
            raise UnsupportedBody("the body is neither a JPEG nor a PNG image") from None
        except ValueError as error:  # such as a comment that unpacks to megabytes
            raise BadInput(f"the image is damaged: {error}") from None
        width, height = file.size
        if width * height > MOST_PIXELS:
            raise TooLarge(f"the image has {width} x {height} pixels; {MOST_PIXELS} are the most")
        try:
            image = file.convert("L" if self.channels == "gray" else "RGB")
        except (OSError, SyntaxError, ValueError) as error:
            raise BadInput(f"the image is damaged: {error}") from None
        wanted = (self.size[1] or width, self.size[0] or height)
        if wanted != image.size:
            image = image.resize(wanted, Image.Resampling[self.resize.upper()])
        array = np.asarray(image)
        return array[..., None] if array.ndim < _RANK else array

    def _values(self, pixels: Array, dtype: np.dtype[Any]) -> Array:
        plain = self.scale == 1 and not any(self.mean) and set(self.std) == {1.0}
        if not plain:
            mean, std = np.array(self.mean, np.float32), np.array(self.std, np.float32)
            values = (pixels * np.float32(self.scale) - mean) / std
            if family(dtype) == "float":
                return values.astype(dtype)
            limits = np.iinfo(dtype)
            pixels = np.clip(np.rint(values), limits.min, limits.max)
        return pixels.astype(dtype)


def image_input(option: Mapping[str, Any], signatures: Mapping[str, Signature]) -> ImageInput:
    """Return what a model's option `image` means for its default signature.

    Raises ValueError where the two do not fit.
    """
    signature = signatures.get("serving_default")
    if signature is None or len(signature.inputs) != 1:
        raise ValueError("images go to a signature serving_default with one input; there is none")
    info = signature.inputs[0]
    by_channel = option.get("layout", "NHWC") == "NCHW"
    shape = (None,) * _RANK if info.shape is None else info.shape[-_RANK:]
    if len(shape) < _RANK or family(numpy_dtype(info.dtype)) not in ("integer", "float"):
        raise ValueError(f"input {info.name!r}, {info.dtype} of shape {shape}, is no image")
    if option.get("dtype") not in (None, info.dtype):
        raise ValueError(f"dtype is {option['dtype']}, but input {info.name!r} is {info.dtype}")
    depth, *sides = shape if by_channel else (shape[2], *shape[:2])
    channels = option.get("channels") or ("gray" if depth == 1 else "rgb")
    if depth not in (None, 1 if channels == "gray" else 3):
        raise ValueError(f"channels is {channels}, but input {info.name!r} has {depth} of them")
    return ImageInput(
        signature,
        _size(option.get("size"), sides, info.name),
        channels,
        by_channel,
        option.get("resize", "bilinear"),
        float(option.get("scale", 1.0)),
        tuple(option.get("mean", (0.0,))),
        tuple(option.get("std", (1.0,))),
    )


def _size(wanted: list[int] | None, sides: list[int | None], name: str) -> Size:
    if wanted is None:
        return sides[0], sides[1]
    for asked, side in zip(wanted, sides, strict=True):
        if side is not None and asked != side:
            raise ValueError(f"size is {wanted}, but input {name!r} is of size {sides}")
    return wanted[0], wanted[1]
