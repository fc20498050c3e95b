"""One block's rows, or one rest, as a file that is believed only if every byte is right.

name      HASH-HASH-COUNT.rows or .rest: the hash of all tokens before the block, the hash
          with the block's own tokens, and how many these are
header    see _HEADER
tokens    int32 [count], little-endian
body      uint8 [body length]
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import stat
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worker.cache.block import WIDTH, chain_hash
from worker.cache.state import BLOCK
from worker.files import atomic_write

# magic with version; identity; hash of all tokens before; kind; number of own tokens; length of
# the body; blake2b of all of that, the tokens and the body
_HEADER = struct.Struct("<8s32s16s4sIQ")
_MAGIC = b"WKVBLK\x00\x01"
_CHECKSUM_BYTES = 32
_NAME = re.compile(r"([0-9a-f]{32})-([0-9a-f]{32})-([1-9][0-9]?)\.(rows|rest)")


class FileKey(NamedTuple):
    """What a file holds, as its name says.

    kind        "rows" or "rest"
    before      hash of all tokens before the block
    own         hash of all tokens up to the end of what the file holds
    num_tokens  how many tokens of the block these are
    """

    kind: str
    before: bytes
    own: bytes
    num_tokens: int

    @property
    def name(self) -> str:
        return f"{self.before.hex()}-{self.own.hex()}-{self.num_tokens}.{self.kind}"


def key_of(kind: str, before: bytes, tokens: bytes) -> FileKey:
    """The key of what belongs to these tokens, which follow a prefix with the hash `before`."""
    return FileKey(kind, before, chain_hash(before, tokens), len(tokens) // WIDTH)


def parse_name(name: str) -> FileKey | None:
    """The key that a file's name says, or None for a name that is not ours."""
    match = _NAME.fullmatch(name)
    if match is None or int(match[3]) > BLOCK:
        return None
    return FileKey(match[4], bytes.fromhex(match[1]), bytes.fromhex(match[2]), int(match[3]))


def file_bytes(key: FileKey, body: int) -> int:
    """Length of the file whose body has `body` bytes."""
    return _HEADER.size + _CHECKSUM_BYTES + key.num_tokens * WIDTH + body


def write(
    path: Path, identity: bytes, key: FileKey, tokens: bytes, body: np.ndarray, used: int
) -> None:
    """Write a file that only this user can read; `used` becomes its mtime, nanoseconds.

    There is no fsync: after a power cut the checksum tells what did not arrive. Raises OSError.
    body: uint8 [n]
    """
    header = _header(identity, key, body.nbytes)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with contextlib.ExitStack() as until_named, atomic_write(path) as partial:
        file = until_named.enter_context(open(os.open(partial, flags, 0o600), "wb"))  # noqa: PTH123
        _lock(file.fileno())
        file.write(header + _checksum(header, tokens, body) + tokens)
        file.write(body.data)
        file.flush()
        os.utime(file.fileno(), ns=(used, used))


def sweep(partial: Path) -> None:
    """Remove a file that was not written to its end, if its writer is dead. Raises OSError."""
    descriptor = os.open(partial, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if _lock(descriptor):
            partial.unlink()
    finally:
        os.close(descriptor)


def read(path: Path, identity: bytes, key: FileKey, tokens: bytes, row_bytes: int) -> np.ndarray:
    """The body of a file; uint8 in memory of its own.

    Raises OSError where it cannot be read, ValueError where it is not what `write` wrote.
    """
    # O_NONBLOCK: a pipe of that name must not make the reader wait.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            raise PermissionError("it is no file of this user")
        length = status.st_size - file_bytes(key, 0)
        if length < 0 or (key.kind == "rows" and length != key.num_tokens * row_bytes):
            raise ValueError("its length is wrong")
        head = bytearray(file_bytes(key, 0))
        body = np.empty(length, np.uint8)
        if os.readv(descriptor, [head, body.data]) != status.st_size:
            raise ValueError("it ended early")
    finally:
        os.close(descriptor)
    header = _header(identity, key, length)
    if bytes(head) != header + _checksum(header, tokens, body) + tokens:
        raise ValueError("its checksum, or what it says about itself, is wrong")
    return body


def _lock(descriptor: int) -> bool:
    """Whether nobody else writes this file. The system unlocks it when its writer dies."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process has it, or the file system knows no locks
        return False
    return True


def _header(identity: bytes, key: FileKey, body: int) -> bytes:
    return _HEADER.pack(_MAGIC, identity, key.before, key.kind.encode(), key.num_tokens, body)


def _checksum(header: bytes, tokens: bytes, body: np.ndarray) -> bytes:
    digest = hashlib.blake2b(header + tokens, digest_size=_CHECKSUM_BYTES)
    digest.update(body.data)
    return digest.digest()
