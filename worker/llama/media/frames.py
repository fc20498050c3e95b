"""What the worker and the process that reads media send each other."""

from __future__ import annotations

import msgspec


class EncoderSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is told first.

    model, projector  the paths of both files
    threads           that compute
    gpu               whether the projector goes to a GPU, where the build knows one
    seconds           that one medium may take
    megabytes         beyond what the projector takes
    longest           seconds of a sound
    pixels            of a picture
    reads             files and folders that it may open; all others it cannot reach, where the
                      system has Landlock
    """

    model: str
    projector: str
    threads: int
    gpu: bool
    seconds: float
    megabytes: int
    longest: float
    pixels: int
    reads: tuple[str, ...]


class EncoderTask(msgspec.Struct, frozen=True, array_like=True):
    """A medium to read.

    kind    image or audio
    counts  only its size is wanted
    """

    data: bytes
    kind: str
    counts: bool


class EncoderReady(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The projector is loaded.

    kinds      media that it takes: image, audio
    width      of a vector
    is_causal  whether a picture's vectors look only at what stands before them
    """

    kinds: tuple[str, ...]
    width: int
    is_causal: bool


class EncodedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A run of what stands in the place of a medium: tokens, or vectors.

    tokens     ids; with vectors there are none
    vectors    float32 [rows, width]
    positions  int32 [4, rows] from 0 on, where the model has M-RoPE; else empty
    length     positions that the vectors take
    is_causal  whether a row looks only at what stands before it
    """

    tokens: tuple[int, ...] = ()
    vectors: bytes = b""
    positions: bytes = b""
    length: int = 0
    is_causal: bool = True


class EncodedMedium(msgspec.Struct, frozen=True, tag=True):
    """A picture or a sound, as the model reads it."""

    pieces: tuple[EncodedPiece, ...]


class MediumSize(msgspec.Struct, frozen=True, tag=True):
    """How much of a context a picture or a sound takes.

    rows      vectors and tokens
    together  the most vectors that look at each other
    """

    rows: int
    together: int


class EncoderRefused(msgspec.Struct, frozen=True, tag=True):
    """Why nothing came of it: a sentence without a full stop.

    died     the process ended, and there is another one
    is_away  the projector could not be loaded again; the next medium tries again
    """

    why: str
    died: bool = False
    is_away: bool = False


EncoderFrame = EncoderReady | EncodedMedium | MediumSize | EncoderRefused
