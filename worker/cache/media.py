"""Media as a model reads them, by the hash of their files: in memory, and in a folder."""

from __future__ import annotations

import contextlib
import hashlib
from collections import OrderedDict
from itertools import chain
from pathlib import Path

from worker import log
from worker.errors import UsageError
from worker.files import atomic_write, entries, open_regular, private_folder

# What the folders of all models begin with.
PREFIX = "media-"
_HASH = 32


class MediaStore:
    """Those that nobody asked for longest leave first. One thread at a time calls it.

    num_bytes  that are held in memory
    """

    def __init__(self, max_bytes: int, folder: Path | None, disk_bytes: int) -> None:
        """folder: of this model, this projector and this build of llama.cpp; None: memory alone.
        disk_bytes: of it and of those beside it, whose names begin with PREFIX too.
        Raises UsageError where it cannot be used."""
        self.num_bytes = 0
        self._max_bytes, self._disk_bytes = max_bytes, disk_bytes
        self._held: OrderedDict[bytes, bytes] = OrderedDict()
        self._folder = None if folder is None else private_folder(folder)

    def get(self, digest: bytes) -> bytes | None:
        """What was kept under the hash; None: nothing, or it is damaged."""
        data = self._held.get(digest)
        if data is not None:
            self._held.move_to_end(digest)
            return data
        data = self._read(digest)
        if data is not None:
            self._hold(digest, data)
        return data

    def put(self, digest: bytes, data: bytes) -> None:
        """Keep it, as far as there is room."""
        self._hold(digest, data)
        if self._folder is None or len(data) > self._disk_bytes:
            return
        whole = hashlib.blake2b(data, digest_size=_HASH).digest() + data
        try:
            if not self._folder.is_dir():  # somebody removed it
                private_folder(self._folder)
            with atomic_write(self._folder / digest.hex()) as partial:
                partial.write_bytes(whole)
        except (OSError, UsageError) as error:
            log.get("cache").warning("a medium was not written", reason=str(error))
        self._trim(self._folder.parent)

    def _hold(self, digest: bytes, data: bytes) -> None:
        if len(data) > self._max_bytes:
            return
        self.num_bytes += len(data) - len(self._held.pop(digest, b""))
        self._held[digest] = data
        while self.num_bytes > self._max_bytes:
            self.num_bytes -= len(self._held.popitem(last=False)[1])

    def _read(self, digest: bytes) -> bytes | None:
        if self._folder is None:
            return None
        path = self._folder / digest.hex()
        try:
            with open_regular(path) as file:
                whole = file.read()
        except OSError:
            return None
        data = whole[_HASH:]
        if hashlib.blake2b(data, digest_size=_HASH).digest() == whole[:_HASH]:
            with contextlib.suppress(OSError):
                path.touch()
            return data
        with contextlib.suppress(OSError):
            path.unlink()
        log.get("cache").warning("a damaged medium was put aside", file=path.name)
        return None

    def _trim(self, parent: Path) -> None:
        files: list[tuple[int, int, Path]] = []
        folders = (each for each in entries(parent) if each.name.startswith(PREFIX))
        for each in chain.from_iterable(map(entries, folders)):
            with contextlib.suppress(OSError):  # another worker has removed it
                if each.is_file(follow_symlinks=False) and not each.name.startswith("."):
                    found = each.stat(follow_symlinks=False)
                    files.append((found.st_mtime_ns, found.st_size, Path(each.path)))
        size = sum(count for _, count, _ in files)
        for _, count, path in sorted(files)[:-1]:
            if size <= self._disk_bytes:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            size -= count
