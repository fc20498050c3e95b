"""A sequence's tokens and state as one file, which is believed only if every byte is right.

header  see _HEADER; then a checksum of the header and of all that follows
key     of the prompts that may find it
tokens  int32, little-endian
rows    of its blocks, one after the other; then the rest
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
from pathlib import Path

import msgspec
import numpy as np

from worker.cache.block import WIDTH, token_bytes
from worker.cache.state import BLOCK
from worker.errors import counted
from worker.files import written_whole

# magic with version; identity; bytes of the key, tokens, bytes of the rest (-1: there is none)
_HEADER = struct.Struct("<8s32sIIq")
_MAGIC = b"WKVSLT\x00\x01"
_CHECKSUM_BYTES = 32
_MOST_KEY = 1024


class KeptSequence(msgspec.Struct):
    """Implements `SlotState`: the state after all `tokens`, int32 [num_tokens].

    parts  packed rows of each block of 64 tokens
    """

    key: bytes
    tokens: np.ndarray
    num_tokens: int
    parts: list[np.ndarray]
    rest: np.ndarray | None

    def rows(self, begin: int, stop: int) -> np.ndarray:  # noqa: ARG002
        """Those of a block; a copy."""
        return self.parts[begin // BLOCK].copy()


def write_slot(path: Path, identity: bytes, kept: KeptSequence) -> int:
    """Write a file that only this user can read; its bytes. Raises OSError."""
    rest = -1 if kept.rest is None else kept.rest.nbytes
    header = _HEADER.pack(_MAGIC, identity, len(kept.key), kept.num_tokens, rest)
    pieces = [kept.key, token_bytes(kept.tokens), *(part.data for part in kept.parts)]
    pieces += [] if kept.rest is None else [kept.rest.data]
    digest = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
    for piece in pieces:
        digest.update(piece)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.ExitStack() as until_named, written_whole(path) as partial:
        file = until_named.enter_context(open(os.open(partial, flags, 0o600), "wb"))  # noqa: PTH123
        for piece in (header, digest.digest(), *pieces):
            file.write(piece)
        file.flush()
        return file.tell()


def read_slot(path: Path, identity: bytes, row_bytes: int, most: int) -> tuple[KeptSequence, int]:
    """What a file holds, of `most` tokens at most, and its bytes.

    Raises OSError where it cannot be read, ValueError where it is not what `write_slot` wrote.
    """
    # O_NONBLOCK: a pipe of that name must not make the reader wait.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            raise ValueError("it is too short")
        magic, whose, key_size, count, rest_size = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise ValueError("this worker did not write it")
        if whose != identity:
            raise ValueError("it is of another model, or of other settings")
        if key_size > _MOST_KEY or not 0 < count <= most:
            raise ValueError(f"it has {counted(count, 'token')}, {most} is the most")
        sizes = [key_size, count * WIDTH, count * row_bytes, max(rest_size, 0)]
        if status.st_size != _HEADER.size + _CHECKSUM_BYTES + sum(sizes):
            raise ValueError("its length is wrong")
        checksum = file.read(_CHECKSUM_BYTES)
        key, tokens, rows, rest = (np.empty(size, np.uint8) for size in sizes)
        digest = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
        for body in (key, tokens, rows, rest):
            if file.readinto(body.data) != len(body):
                raise ValueError("it ended early")
            digest.update(body.data)
    if checksum != digest.digest():
        raise ValueError("its checksum is wrong")
    step = BLOCK * row_bytes
    parts = [rows[place : place + step] for place in range(0, len(rows), step)] if step else []
    parts = parts or [rows] * -(-count // BLOCK)
    kept = KeptSequence(
        key.tobytes(), tokens.view("<i4"), count, parts, None if rest_size < 0 else rest
    )
    return kept, status.st_size
