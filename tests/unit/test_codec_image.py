"""Images as input: what the declared preprocessing makes of the pixels."""

from __future__ import annotations

import io
import struct
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from modelsup.worker.codecs.base import BadInput, TooLarge, UnsupportedBody
from modelsup.worker.codecs.image import MOST_PIXELS, image_input
from modelsup.worker.contract import Signature, TensorInfo
from PIL import Image, PngImagePlugin

Array = np.ndarray[Any, Any]
PIXELS = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
RGB = (None, None, None, 3)


def signatures(shape: Any = RGB, dtype: str = "float32") -> dict[str, Signature]:
    info = TensorInfo("image", dtype, shape)
    batchable = shape is not None and shape[0] is None
    return {"serving_default": Signature("serving_default", (info,), (), batchable)}


def file_of(pixels: Array, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def decoded(body: bytes, option: dict[str, Any], *spec: Any) -> Array:
    request = image_input(option, signatures(*spec)).decode(body)
    return request.inputs["image"]


def test_an_image_is_one_row_of_its_pixels() -> None:
    request = image_input({}, signatures()).decode(file_of(PIXELS))
    assert request.rows == 1
    assert request.inputs["image"].dtype == np.float32
    np.testing.assert_array_equal(request.inputs["image"][0], PIXELS)


def test_a_model_without_a_batch_gets_the_image_itself() -> None:
    np.testing.assert_array_equal(decoded(file_of(PIXELS), {}, (2, 3, 3), "uint8"), PIXELS)


def test_scale_mean_and_std_are_applied_by_channel() -> None:
    option = {"scale": 1 / 255, "mean": [0.1, 0.2, 0.3], "std": [0.5, 0.25, 1.0]}
    expected = (PIXELS / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.25, 1.0]
    np.testing.assert_allclose(decoded(file_of(PIXELS), option)[0], expected, atol=1e-6)


def test_channels_may_be_reversed_and_come_first() -> None:
    option = {"channels": "bgr", "layout": "NCHW"}
    found = decoded(file_of(PIXELS), option, (None, 3, 2, 3))
    np.testing.assert_array_equal(found[0], PIXELS[..., ::-1].transpose(2, 0, 1))


def test_gray_follows_from_the_shape() -> None:
    gray = PIXELS[..., 0].copy()
    found = decoded(file_of(gray), {}, (None, 2, 3, 1))
    np.testing.assert_array_equal(found[0, ..., 0], gray)
    assert decoded(file_of(gray), {}).shape == (1, 2, 3, 3)  # a gray file for a colour model


def test_values_for_whole_numbers_are_rounded_and_stay_in_range() -> None:
    found = decoded(file_of(PIXELS), {"scale": 2.0, "mean": [10.2]}, RGB, "uint8")
    expected = np.clip(np.rint(PIXELS * 2.0 - 10.2), 0, 255)
    np.testing.assert_array_equal(found[0], expected)


@pytest.mark.parametrize("resize", ["nearest", "bilinear", "bicubic"])
def test_the_size_is_that_of_the_model_or_the_option(resize: str) -> None:
    expected = Image.fromarray(PIXELS).resize((5, 4), Image.Resampling[resize.upper()])
    for option, shape in (({"size": [4, 5]}, RGB), ({}, (None, 4, 5, 3))):
        found = decoded(file_of(PIXELS), {"resize": resize, **option}, shape)
        np.testing.assert_array_equal(found[0], np.asarray(expected))


def test_transparency_is_dropped() -> None:
    pixels = np.dstack([PIXELS, np.full((2, 3), 7, np.uint8)])
    np.testing.assert_array_equal(decoded(file_of(pixels), {})[0], PIXELS)


def test_a_jpeg_comes_close() -> None:
    flat = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    found = decoded(file_of(flat, "JPEG", quality=95), {})
    assert np.abs(found[0] - flat).max() < 6


def bomb() -> bytes:
    """Return a PNG of a few bytes that says it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checked = kind + data
        return struct.pack(">I", len(data)) + checked + struct.pack(">I", zlib.crc32(checked))

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


def chatty() -> bytes:
    """Return a PNG whose comment unpacks to megabytes."""
    comment = PngImagePlugin.PngInfo()
    comment.add_text("said", "much" * 10**6, zip=True)
    return file_of(PIXELS, pnginfo=comment)


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (b"", UnsupportedBody, "neither a JPEG nor a PNG"),
        (b"hello", UnsupportedBody, "neither a JPEG nor a PNG"),
        (file_of(PIXELS, "GIF"), UnsupportedBody, "neither a JPEG nor a PNG"),
        (file_of(NOISE)[:5000], BadInput, "the image is damaged"),
        (chatty(), BadInput, "the image is damaged: Decompressed data too large"),
        (bomb(), TooLarge, f"{MOST_PIXELS} are the most"),
    ],
)
def test_what_is_no_image_is_said(body: bytes, kind: type[BadInput], message: str) -> None:
    with pytest.raises(kind, match=message):
        decoded(body, {})


def test_without_pillow_it_is_said_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    body = file_of(PIXELS)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UnsupportedBody, match=r"modelsup\[images\]") as error:
        decoded(body, {})
    assert error.value.status == 415


@pytest.mark.parametrize(
    ("option", "shape", "dtype", "message"),
    [
        ({}, (None, 4), "float32", "is no image"),
        ({}, RGB, "string", "is no image"),
        ({}, (None, 2, 2, 4), "float32", "'image' has 4 of them"),
        ({"channels": "gray"}, RGB, "float32", "channels is gray, but input 'image' has 3"),
        ({"dtype": "uint8"}, RGB, "float32", "dtype is uint8, but input 'image' is float32"),
        ({"size": [5, 5]}, (None, 4, 5, 3), "float32", "size is .*but input 'image' is of size"),
        ({"layout": "NCHW"}, (None, 4, 5, 3), "float32", "has 4 of them"),
    ],
)
def test_an_option_that_does_not_fit_the_model(
    option: dict[str, Any], shape: Any, dtype: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        image_input(option, signatures(shape, dtype))


def test_a_model_of_several_inputs_takes_no_images() -> None:
    tensors = (TensorInfo("a", "float32", RGB), TensorInfo("b", "float32", RGB))
    two = {"serving_default": Signature("serving_default", tensors, (), batchable=True)}
    with pytest.raises(ValueError, match="with one input"):
        image_input({}, two)
