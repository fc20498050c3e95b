"""Packed bodies: pieces of a bounded size, whatever is in them."""

from __future__ import annotations

import gzip
import zlib

import pytest

from tests.support.cases import for_each
from worker.api.intake.packed_body import CodedBodyError, PackedBody, packed_body, zstd
from worker.errors import RequestError

TEXT = b"".join(b"%d " % number for number in range(4000))
PACKED = {"gzip": gzip.compress(TEXT), "x-gzip": gzip.compress(TEXT), "zstd": zstd.compress(TEXT)}

# A window of 16 MiB.
WIDE = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 24})


def unpacked(coding: str, data: bytes, *, chunk: int = 4096, most: int = 1000) -> bytes:
    body = packed_body(coding)
    assert body is not None
    found = b""
    for start in range(0, len(data), chunk):
        body.feed(data[start : start + chunk])
        while part := body.take(most):
            assert len(part) <= most
            found += part
    body.check_end()
    return found


@for_each("coding", PACKED)
def test_pieces(coding: str) -> None:
    """However it comes, all of it leaves, in pieces of at most the size that is asked for."""
    for chunk, most in ((1 << 20, 1 << 20), (7, 1 << 20), (4096, 1000), (1 << 20, 999)):
        assert unpacked(coding, PACKED[coding], chunk=chunk, most=most) == TEXT


@for_each("coding", ["gzip", "zstd"])
def test_frames_follow_each_other(coding: str) -> None:
    """They are one body, up to so many."""
    data = PACKED[coding]
    assert unpacked(coding, data + data) == TEXT + TEXT
    with pytest.raises(RequestError, match="more than 64 frames"):
        unpacked(coding, data * 65, most=1 << 20)


@for_each("coding", ["gzip", "zstd"])
def test_a_bomb(coding: str) -> None:
    """64 MiB are not made at once: each piece is made when it is asked for."""
    pack = zlib.compressobj(wbits=31) if coding == "gzip" else zstd.ZstdCompressor()
    zeros = bytes(1 << 20)
    data = b"".join(pack.compress(zeros) for _ in range(64)) + pack.flush()
    body = PackedBody(coding)
    body.feed(data)
    assert [len(body.take(1000)) for _ in range(3)] == [1000] * 3


@for_each(
    ("coding", "data"),
    [
        ("gzip", TEXT),
        ("zstd", TEXT),
        ("gzip", PACKED["gzip"][:-1]),
        ("zstd", PACKED["zstd"][:-1]),
        ("gzip", PACKED["gzip"] + b"tail"),
        ("zstd", PACKED["zstd"] + b"tail"),
        ("gzip", PACKED["zstd"]),
        ("zstd", WIDE.compress(TEXT) + WIDE.flush()),
    ],
)
def test_damage(coding: str, data: bytes) -> None:
    """It is a 400 in one sentence; so is a window that would take more memory than RFC 9659
    allows."""
    with pytest.raises(RequestError, match=rf"not valid {coding}: [a-z ]+\.$") as caught:
        unpacked(coding, data)
    assert caught.value.http_status == 400


def test_codings() -> None:
    """No coding is a plain body; an unknown one is a 415 that names those that are read."""
    assert packed_body("") is packed_body("identity") is None
    for coding in ("deflate", "br", "gzip, zstd"):
        with pytest.raises(CodedBodyError, match="as gzip, as zstd or as it is"):
            packed_body(coding)
