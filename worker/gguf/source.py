"""Files as they are opened: their first bytes, read as they are asked for; and from checking to
loading, so that the files that were checked are the files that are loaded.

They are read with `pread` and not mapped. So when another process cuts the file short, or the disk
fails, that is an error here and not a SIGBUS.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from worker.gguf import foreign
from worker.gguf.header import Identity, ModelFile, refuse

_FIRST_READ = 4 * 1024 * 1024
_AT_ONCE = 16 * 1024 * 1024  # a file up to this size, a vocabulary for example, is read at once
_DESCRIPTORS = Path("/proc/self/fd")


class Source:
    """The first bytes of an open file, at most `limit` of them; `data` holds those read so far."""

    def __init__(self, fd: int, path: str, limit: int) -> None:
        self.fd, self.path = fd, path
        self.identity = Identity.of(os.fstat(fd))
        self.size = self.identity.size
        self.limit = min(self.size, limit)
        self.data = b""

    def need(self, end: int, field: str, *, at: int) -> None:
        """Make sure that bytes up to `end` are in `data`; `field` begins at `at`. Raises
        ModelFileError."""
        if end <= len(self.data):
            return
        if end > self.size:
            raise refuse(
                "TRUNCATED",
                f"The file ends within {field}.",
                at=at,
                field=field,
                got=self.size,
                limit=end,
                hint="Download it again and compare its size or checksum.",
            )
        if end > self.limit:
            raise refuse(
                "METADATA_TOO_LARGE",
                f"The metadata reaches beyond {self.limit} bytes at {field}.",
                at=at,
                field=field,
                got=end,
                limit=self.limit,
                hint="No known model needs that much; get the file from its publisher.",
            )
        self.grow(end)

    def grow(self, end: int = 0) -> None:
        """Read more: up to `end`, or a good piece where `end` has been read already. Raises
        ModelFileError."""
        have = len(self.data)
        first = _AT_ONCE if self.size <= _AT_ONCE else _FIRST_READ
        goal = min(self.limit, max(end, have * 4, first))
        pieces = [self.data] if have else []
        while have < goal:
            try:
                piece = os.pread(self.fd, goal - have, have)
            except OSError as error:
                reason = os.strerror(error.errno or errno.EIO)
                raise refuse(
                    "UNREADABLE",
                    f"Reading {self.path} failed at byte {have}: {reason}.",
                    at=have,
                    hint="Check the disk or the network mount.",
                ) from error
            if not piece:
                raise refuse(
                    "TRUNCATED",
                    f"{self.path} became shorter while it was read.",
                    at=have,
                    got=have,
                    limit=self.size,
                    hint="Wait until the download or copy is complete.",
                )
            pieces.append(piece)
            have += len(piece)
        self.data = pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextmanager
def open_file(path: str) -> Generator[int]:
    """A descriptor of a regular file, closed with the block. A FIFO or device does not block it.
    Raises ModelFileError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise foreign.unopenable(path, error) from error
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISDIR(mode):
            raise foreign.directory(Path(path))
        if not stat.S_ISREG(mode):
            raise foreign.special(path, mode)
        yield fd
    finally:
        os.close(fd)


@contextmanager
def pin(files: Sequence[ModelFile]) -> Generator[list[str]]:
    """Paths that lead to the very files that were read, whatever is renamed over them.

    On Linux the paths go through open descriptors and are good inside the block: one that another
    file is renamed over still leads to the old one. Elsewhere they are the plain paths.

    Raises CHANGED where a file was replaced, cut or written since it was read, or where it is
    written while the block runs.
    """
    with ExitStack() as stack:
        descriptors = [stack.enter_context(open_file(file.path)) for file in files]
        paths = [
            str(_DESCRIPTORS / str(descriptor)) if _DESCRIPTORS.is_dir() else file.path
            for file, descriptor in zip(files, descriptors, strict=True)
        ]
        _check(files, descriptors)
        yield paths
        _check(files, paths)


def _check(files: Sequence[ModelFile], places: Sequence[int | str]) -> None:
    """Raise CHANGED unless each place, a descriptor or a path, is the file that was read."""
    for file, place in zip(files, places, strict=True):
        now = Identity.of(os.stat(place))  # noqa: PTH116  (a Path is no descriptor)
        if now != file.identity:
            how = "became shorter" if now.size < file.size else "was replaced or written"
            raise refuse(
                "CHANGED",
                f"{file.path} {how} after it was checked.",
                got=now.size,
                limit=file.size,
                hint="Wait until it is complete, then start the worker again.",
            )
