"""Bodies that travel compressed: gzip and deflate, within a limit, both ways."""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from .base import BadInput, Body, TooLarge, UnsupportedBody

if TYPE_CHECKING:
    from collections.abc import Iterable

WORTH_IT: Final = 16 * 1024  # bytes of an answer; below, packing costs more than it saves

_LEVEL: Final = 1  # three times as fast as the usual one, for a few per cent more bytes
_GZIP: Final = 16 + zlib.MAX_WBITS
_ZLIB: Final = zlib.MAX_WBITS
_RAW: Final = -zlib.MAX_WBITS
_WINDOWS: Final = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB}


def unpacked(body: Body, encoding: str, limit: int) -> Body:
    """Return a request's body without its Content-Encoding, at most `limit` bytes of it.

    Stops at the limit, so that a small body cannot become one that fills the memory. Raises
    UnsupportedBody, TooLarge, or BadInput for one that is damaged.
    """
    name = encoding.strip().lower()
    if name == "identity":
        return body
    if name not in _WINDOWS:
        raise UnsupportedBody(
            f"Content-Encoding {encoding!r} is not supported; use gzip or deflate, or none"
        )
    window = _WINDOWS[name]
    if window == _ZLIB and not _has_zlib_header(body):
        window = _RAW  # what some clients take "deflate" for
    try:
        return _inflated(body, window, limit)
    except zlib.error as error:
        raise BadInput(f"the body is not valid {name}: {error}") from None


def _has_zlib_header(body: Body) -> bool:
    return len(body) >= 2 and body[0] & 0x0F == 8 and (body[0] << 8 | body[1]) % 31 == 0


def _inflated(body: Body, window: int, limit: int) -> bytes:
    machine = zlib.decompressobj(window)
    whole = machine.decompress(body, limit + 1)
    if len(whole) > limit:
        raise TooLarge(
            f"the body is over the limit of {limit} bytes once it is unpacked; send less in one "
            "request, or raise the setting max_body_size"
        )
    if not machine.eof or machine.unused_data:
        raise BadInput("the compressed body ends before its end, or goes on behind it")
    return whole


@lru_cache(maxsize=256)
def chosen(accepted: bytes) -> str | None:
    """Return the encoding to answer in for an Accept-Encoding header; None: as it is."""
    best, best_weight = None, 0.0
    for part in accepted.decode("latin-1").lower().split(","):
        name, _, parameter = part.partition(";")
        weight = _weight(parameter)
        if name.strip() in ("gzip", "deflate") and weight > best_weight:
            best, best_weight = name.strip(), weight
    return best


def _weight(parameter: str) -> float:
    key, _, value = parameter.partition("=")
    if key.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def packed(buffers: Iterable[bytes | memoryview], encoding: str) -> list[bytes | memoryview]:
    """Return an answer's body in an encoding that `chosen` gave."""
    machine = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOWS[encoding])
    parts = [machine.compress(buffer) for buffer in buffers]
    return [*(part for part in parts if part), machine.flush()]
