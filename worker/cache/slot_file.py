"""A sequence's tokens and state as one file, which is believed only if every byte is right.

header  see _HEADER; then a checksum of the header and of all that follows
key     of the prompts that may find it
tokens  int32, little-endian
places  after how many tokens each rest stands, ascending, and its bytes; see _PLACE
rows    of its blocks, one after the other; then the rests
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
from worker.cache.state import BLOCK, RestAt
from worker.errors import quantity
from worker.files import atomic_write

# magic, version; identity; bytes of the key, tokens, rests
_HEADER = struct.Struct("<6sH32sIII")
_MAGIC, _VERSION = b"WKVSLT", 2
_PLACE = np.dtype([("count", "<u4"), ("nbytes", "<u8")])
_CHECKSUM_BYTES = 32
_MOST_KEY = 1024


class KeptSequence(msgspec.Struct):
    """Implements `SlotState`: the state after all `tokens`, int32 [num_tokens].

    parts  packed rows of each block of 64 tokens
    rests  after some of the tokens, ascending; where a model has rests, the last one after all
    """

    key: bytes
    tokens: np.ndarray
    num_tokens: int
    parts: list[np.ndarray]
    rests: list[RestAt]

    @property
    def rest(self) -> np.ndarray | None:
        """The one after all tokens, uint8 [n]."""
        return self.rests[-1][1] if self.rests else None

    def rows(self, begin: int, stop: int) -> np.ndarray:  # noqa: ARG002
        """Those of a block, uint8 [n]; a copy."""
        return self.parts[begin // BLOCK].copy()


def write_slot(path: Path, identity: bytes, kept: KeptSequence) -> int:
    """Write a file that only this user can read; its bytes. Raises OSError."""
    header = _HEADER.pack(
        _MAGIC, _VERSION, identity, len(kept.key), kept.num_tokens, len(kept.rests)
    )
    places = np.array([(count, rest.nbytes) for count, rest in kept.rests], _PLACE)
    pieces = [kept.key, token_bytes(kept.tokens), places.tobytes()]
    bodies = [*kept.parts, *(rest for _, rest in kept.rests)]
    digest = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)
    for piece in (*pieces, *(body.data for body in bodies)):
        digest.update(piece)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.ExitStack() as until_named, atomic_write(path) as partial:
        file = until_named.enter_context(open(os.open(partial, flags, 0o600), "wb"))  # noqa: PTH123
        for piece in (header, digest.digest(), *pieces, *(body.data for body in bodies)):
            file.write(piece)
        file.flush()
        return file.tell()


def read_slot(
    path: Path, identity: bytes, row_bytes: int, most: int, most_bytes: int
) -> tuple[KeptSequence, int]:
    """What a file of `most_bytes` at most holds, of `most` tokens at most, and its bytes.

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
        magic, version, whose, key_size, count, num_rests = _HEADER.unpack(header)
        if magic != _MAGIC:
            raise ValueError("this worker did not write it")
        if version != _VERSION:
            raise ValueError("another version of this worker wrote it; save it again")
        if whose != identity:
            raise ValueError("it is of another model, or of other settings")
        if key_size > _MOST_KEY or not 0 < count <= most:
            raise ValueError(f"it has {quantity(count, 'token')}, {most} is the most")
        if num_rests > count:
            raise ValueError(f"it has {num_rests} checkpoints of {count} tokens")
        if status.st_size > most_bytes:
            raise ValueError(f"it is larger than what may be cached, {most_bytes} bytes")
        sizes = [key_size, count * WIDTH, num_rests * _PLACE.itemsize]
        checksum = file.read(_CHECKSUM_BYTES)
        digest = hashlib.blake2b(header, digest_size=_CHECKSUM_BYTES)

        def read(size: int) -> np.ndarray:
            body = np.empty(size, np.uint8)
            if file.readinto(body.data) != size:
                raise ValueError("it ended early")
            digest.update(body.data)
            return body

        if status.st_size < file.tell() + sum(sizes):
            raise ValueError("its length is wrong")
        key, tokens, places = map(read, sizes)
        counts, lengths = (places.view(_PLACE)[name].tolist() for name in ("count", "nbytes"))
        if status.st_size != file.tell() + count * row_bytes + sum(lengths):
            raise ValueError("its length is wrong")
        if counts and (counts[-1] != count or counts != sorted(set(counts)) or not counts[0]):
            raise ValueError("its checkpoints are in the wrong order")
        rows = read(count * row_bytes)
        rests = list(zip(counts, map(read, lengths), strict=True))
    if checksum != digest.digest():
        raise ValueError("its checksum is wrong")
    step = BLOCK * row_bytes
    parts = [rows[place : place + step] for place in range(0, len(rows), step)] if step else []
    parts = parts or [rows] * -(-count // BLOCK)
    return KeptSequence(key.tobytes(), tokens.view("<i4"), count, parts, rests), status.st_size
