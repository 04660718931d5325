"""Compressed bodies: what comes in stays within the limit, what goes out can be read."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from modelsup.worker.codecs import compression
from modelsup.worker.codecs.base import BadInput, TooLarge, UnsupportedBody


def raw_deflate(data: bytes) -> bytes:
    machine = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return machine.compress(data) + machine.flush()


@given(data=st.binary())
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("X-GZIP", gzip.compress),
        ("deflate", zlib.compress),
        (" deflate ", raw_deflate),
        ("identity", bytes),
    ],
)
def test_what_was_packed_is_unpacked(encoding: str, pack: object, data: bytes) -> None:
    assert callable(pack)
    assert compression.unpacked(pack(data), encoding, len(data)) == data


@given(body=st.binary(), encoding=st.sampled_from(["gzip", "deflate"]))
def test_any_bytes_are_unpacked_or_refused(body: bytes, encoding: str) -> None:
    with suppress(BadInput):
        assert len(compression.unpacked(body, encoding, 1000)) <= 1000


def test_a_bomb_takes_no_more_than_the_limit() -> None:
    limit = 100_000
    bomb = gzip.compress(bytes(200 * limit))
    tracemalloc.start()
    with pytest.raises(TooLarge, match="over the limit of 100000 bytes"):
        compression.unpacked(bomb, "gzip", limit)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * limit


def test_the_limit_itself_is_allowed() -> None:
    assert compression.unpacked(gzip.compress(bytes(50)), "gzip", 50) == bytes(50)
    with pytest.raises(TooLarge):
        compression.unpacked(gzip.compress(bytes(51)), "gzip", 50)


@pytest.mark.parametrize("encoding", ["br", "gzip, deflate", "", "zstd"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedBody, match="use gzip or deflate"):
        compression.unpacked(b"", encoding, 10)


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        (b"gzip", "gzip"),
        (b"deflate, gzip", "deflate"),
        (b"gzip;q=0.5, deflate;q=0.8, br", "deflate"),
        (b"GZIP;q=1.0", "gzip"),
        (b"gzip;q=0", None),
        (b"gzip;q=x", None),
        (b"identity", None),
        (b"br, zstd, *", None),
        (b"", None),
    ],
)
def test_which_encoding_is_answered(accepted: bytes, encoding: str | None) -> None:
    assert compression.chosen(accepted) == encoding


@pytest.mark.parametrize(
    ("encoding", "read"), [("gzip", gzip.decompress), ("deflate", zlib.decompress)]
)
def test_what_is_packed_can_be_read(encoding: str, read: object) -> None:
    assert callable(read)
    buffers = [b'{"a":1}', memoryview(bytes(100_000))]
    assert read(b"".join(compression.packed(buffers, encoding))) == b"".join(buffers)
