"""Bodies with a Content-Encoding: unpacked in pieces, so that one of any size takes no memory."""

from __future__ import annotations

import sys
import zlib
from typing import Protocol

from worker.errors import RequestError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

# RFC 9659: what a Content-Encoding may make its reader keep.
_WINDOW_LOG = 23
_GZIP = 31  # zlib's word for gzip with the largest window
# Each that begins copies what is behind it.
_MOST_FRAMES = 64


class CodedBodyError(RequestError, http_status=415, code="unsupported_encoding"):
    """The body is packed in a way that is not read."""


class _Unpacker(Protocol):
    """Of one frame; see `compression.zstd.ZstdDecompressor`."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Gunzip:
    """zlib's with the same face: it keeps what it had no room for."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_GZIP)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max_length)


def _unzstd() -> _Unpacker:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


_UNPACKERS = {"gzip": _Gunzip, "x-gzip": _Gunzip, "zstd": _unzstd}


class PackedBody:
    """One body on its way; its bytes come in chunks and leave in pieces."""

    def __init__(self, coding: str) -> None:
        """coding: one of _UNPACKERS"""
        self._coding = coding
        self._waiting = b""
        self._frame: _Unpacker | None = None
        self._num_frames = 0

    def feed(self, chunk: bytes) -> None:
        """Add what came."""
        self._waiting += chunk

    def take(self, most: int) -> bytes:
        """The next bytes, at most so many; none: more must be fed. Raises RequestError."""
        part = b""
        while not part:
            frame = self._frame
            if frame is None:
                if not self._waiting:
                    return b""
                self._num_frames += 1
                if self._num_frames > _MOST_FRAMES:
                    raise self._wrong(f"it has more than {_MOST_FRAMES} frames")
                frame = self._frame = _UNPACKERS[self._coding]()
            chunk, self._waiting = self._waiting, b""
            try:
                part = frame.decompress(chunk, most)
            except (zlib.error, zstd.ZstdError) as error:
                why = str(error).rpartition(": ")[2]
                raise self._wrong(why[:1].lower() + why[1:]) from None
            if frame.eof:
                self._waiting, self._frame = frame.unused_data, None
            elif not part:
                return b""
        return part

    def check_end(self) -> None:
        """Raise RequestError where it ends too early."""
        if self._frame is not None:
            raise self._wrong("it ends too early")

    def _wrong(self, why: str) -> RequestError:
        return RequestError(f"The body is not valid {self._coding}: {why}.")


def packed_body(coding: str) -> PackedBody | None:
    """coding: the header Content-Encoding; None: the body is not packed. Raises CodedBodyError."""
    name = coding.strip().lower()
    if name in ("", "identity"):
        return None
    if name not in _UNPACKERS:
        raise CodedBodyError(
            f"The body is packed as {name[:40]}.", hint="Send it as gzip, as zstd or as it is."
        )
    return PackedBody(name)
