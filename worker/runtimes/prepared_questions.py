"""Make up inputs for a signature: numbers and texts drawn at random, in the shapes it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from ..contract import Signature, TensorInfo
    from .base import Array

BATCHES: Final = (1, 2, 3, 8)  # rows
SIZES: Final = (32, 8, 1, 64, 224)  # of the other free dimensions, to be tried in this order
LETTERS: Final = np.array([letter.encode() for letter in "abcdefghijklmnopqrstuvwxyz 0123456789äß"])


def question(
    signature: Signature, rows: int, size: int, generator: np.random.Generator, *, wide: bool
) -> dict[str, Array]:
    """Return an input for each tensor. A free first dimension is `rows`, the others are `size`.

    Narrow numbers are 0 to 1, which most models can make something of: an image, or a position in
    a short table. `wide` ones are negative too, and integers up to 9.
    """
    return {
        info.name: _draw(info.dtype, _shape(info, rows, size), generator, wide=wide)
        for info in signature.inputs
    }


def _shape(info: TensorInfo, rows: int, size: int) -> tuple[int, ...]:
    if info.shape is None:  # any rank: a table is what most can take
        return rows, size
    return tuple(
        (size if place else rows) if known is None else known
        for place, known in enumerate(info.shape)
    )


def _draw(
    dtype: str, shape: tuple[int, ...], generator: np.random.Generator, *, wide: bool
) -> Array:
    if dtype == "string":
        return _texts(shape, generator, longest=40 if wide else 8)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        return generator.integers(0, 10 if wide else 2, shape).astype(kind)
    if kind.kind == "b":
        return generator.integers(0, 2, shape).astype(kind)
    drawn = generator.normal(scale=3, size=shape) if wide else generator.random(shape)
    if kind.kind == "c":
        drawn = drawn + 1j * generator.random(shape)
    return np.asarray(drawn).astype(kind)


def _texts(shape: tuple[int, ...], generator: np.random.Generator, *, longest: int) -> Array:
    texts = np.empty(shape, dtype=object)
    for place in np.ndindex(shape):
        letters = generator.choice(LETTERS, size=generator.integers(0, longest + 1))
        texts[place] = b"".join(letters.tolist())
    return texts
