"""Which files a folder of blocks holds, in memory: asked by one thread, changed by another."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from worker.cache.block import WIDTH
from worker.cache.block_file import FileKey, key_of


class FileUse(NamedTuple):
    """A file's length in bytes, and when it was used last: its mtime, nanoseconds."""

    nbytes: int
    used: int


# What a file costs at least: file systems give out room in pieces of this size.
_PIECE = 4096


def room_of(nbytes: int) -> int:
    """Bytes that a file of `nbytes` takes on the disk."""
    return -(-nbytes // _PIECE) * _PIECE


class Index:
    """The files by their keys. Every method may be called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._files: dict[FileKey, FileUse] = {}
        # (kind, hash of what is before) -> of how many tokens there are files, and how many files
        self._counts: dict[tuple[str, bytes], Counter[int]] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Room that all files take on the disk."""
        return self._num_bytes

    def __contains__(self, key: FileKey) -> bool:
        return key in self._files

    def get(self, key: FileKey) -> FileUse | None:
        return self._files.get(key)

    def longest(self, kind: str, before: bytes, tokens: bytes) -> FileKey | None:
        """The file of the most tokens that `tokens` (a block's, or fewer) begins with."""
        whole = key_of(kind, before, tokens)
        if whole in self._files:
            return whole
        return next(iter(self.beginnings(kind, before, tokens)), None)

    def beginnings(self, kind: str, before: bytes, tokens: bytes) -> list[FileKey]:
        """The files of what `tokens` begins with, the longest first."""
        with self._lock:
            counts = sorted(self._counts.get((kind, before), ()), reverse=True)
        keys = [
            key_of(kind, before, tokens[: count * WIDTH])
            for count in counts
            if count * WIDTH <= len(tokens)
        ]
        return [key for key in keys if key in self._files]

    def add(self, key: FileKey, use: FileUse) -> None:
        """A file was written, or used again."""
        with self._lock:
            self._discard(key)
            self._files[key] = use
            self._counts.setdefault((key.kind, key.before), Counter())[key.num_tokens] += 1
            self._num_bytes += room_of(use.nbytes)

    def discard(self, key: FileKey) -> None:
        with self._lock:
            self._discard(key)

    def replace(self, files: Mapping[FileKey, FileUse]) -> None:
        """The folder was listed: these are all its files."""
        counts: dict[tuple[str, bytes], Counter[int]] = {}
        for key in files:
            counts.setdefault((key.kind, key.before), Counter())[key.num_tokens] += 1
        num_bytes = sum(room_of(use.nbytes) for use in files.values())
        with self._lock:
            self._files, self._counts, self._num_bytes = dict(files), counts, num_bytes

    def oldest_first(self) -> list[FileKey]:
        """All files, that which was not used for the longest time first."""
        with self._lock:
            return sorted(self._files, key=lambda key: self._files[key].used)

    def _discard(self, key: FileKey) -> None:
        use = self._files.pop(key, None)
        if use is None:
            return
        self._num_bytes -= room_of(use.nbytes)
        counts = self._counts[key.kind, key.before]
        counts[key.num_tokens] -= 1
        if not counts[key.num_tokens]:
            del counts[key.num_tokens]
        if not counts:
            del self._counts[key.kind, key.before]

    def check_integrity(self) -> None:
        """Raise AssertionError unless counts and sums are those of the files."""
        with self._lock:
            counts: dict[tuple[str, bytes], Counter[int]] = {}
            for key in self._files:
                counts.setdefault((key.kind, key.before), Counter())[key.num_tokens] += 1
            assert counts == self._counts, (len(self._files), counts, self._counts)
            total = sum(room_of(use.nbytes) for use in self._files.values())
            assert total == self._num_bytes, (total, self._num_bytes)
