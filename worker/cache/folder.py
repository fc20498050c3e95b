"""The folder with one model's blocks: listed, kept within its size, written to and read from."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worker import log
from worker.cache.block import WIDTH
from worker.cache.block_file import FileKey, file_bytes, key_of, parse_name, read, sweep, write
from worker.files import entries, private_folder

# What a file costs at least: file systems give out room in pieces of this size.
_PIECE = 4096
# Nanoseconds for which a file system's clock may stand still, with much to spare.
_TICK_NS = 2_000_000_000
# Stands for the mtime of a folder that was listed while that could still hide a change.
_UNSETTLED = -1
# Seconds after which the folder is listed again even if all its changes seem to be our own.
_LIST_AGAIN_S = 60
# The process is short of descriptors or memory for the moment, or another one has just removed the
# folder or the file; the disk is well.
PASSING = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOENT, errno.ENOMEM, errno.ESTALE})
# Characters of a subfolder's name.
_NAME = 32
_FOLDER = re.compile(rf"[0-9a-f]{{{_NAME}}}")
# When the folder is full, this part of it is freed at once: the files are sorted for it.
_FREED_AT_ONCE = 1 / 32


class FileUse(NamedTuple):
    """A file's length in bytes, and when it was used last: its mtime, nanoseconds."""

    nbytes: int
    used: int


def room_of(nbytes: int) -> int:
    """Bytes that a file of `nbytes` takes on the disk."""
    return -(-nbytes // _PIECE) * _PIECE


def _is_unfinished(name: str) -> bool:
    """Whether a file of that name is being written, or its writer has died."""
    return name.startswith(".") and name.endswith(".partial")


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


class BlockFolder:
    """The files `FOLDER/HASH OF IDENTITY/*`; other workers may write and remove them as well.

    `read` is for the engine's thread, all else for one other thread.

    max_bytes  room that all files together may take, including those of other workers and of
               other models in FOLDER. Those of the same model are seen within a few seconds, or
               after a minute if they came in the same moment as one of our own, so that two who
               write at the same time may hold a few files more for that long; those of other
               models when the folder is listed, once a minute at least.
    identity   what the bytes depend on: the model's file, cache types, adapters, llama.cpp's build
    row_bytes  bytes of a token's rows
    """

    def __init__(self, folder: Path, max_bytes: int, identity: bytes, row_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.identity = hashlib.blake2b(identity, digest_size=32).digest()
        self.index = Index()
        self.path = private_folder(folder / self.identity.hex()[:_NAME])
        self.num_written = 0
        self.num_read = 0
        self.num_errors = 0
        self._row_bytes = row_bytes
        self._ignored: set[FileKey] = set()  # files that cannot be read, or not be written
        self._log = log.get("cache")
        self._seen: int = -1  # the folder's mtime up to which the index knows it, nanoseconds
        self._listed = (0.0, _UNSETTLED)  # when it was listed, and its mtime then
        self._other_bytes = 0  # of other models, when the folder was listed

    def refresh(self) -> None:
        """List the folder again if others have changed it."""
        changed = self._mtime()
        at, before = self._listed
        # Two changes in one tick of the file system's clock have the same mtime.
        is_settled = time.time_ns() - changed > _TICK_NS
        is_due = time.monotonic() >= at + _LIST_AGAIN_S or (before == _UNSETTLED and is_settled)
        if changed == self._seen and (changed == before or not is_due):
            return
        try:
            with os.scandir(self.path) as found:
                listed = list(found)
        except FileNotFoundError:
            listed = []
        except OSError:
            return  # it is tried again; what was there may still be
        self._seen = changed
        self._listed = (time.monotonic(), changed if is_settled else _UNSETTLED)
        files: dict[FileKey, FileUse] = {}
        for entry in listed:
            with contextlib.suppress(OSError):
                self._list(entry, files)
        self.index.replace(files)
        self._other_bytes = sum(room_of(use.nbytes) for _, use in self._others())
        self._make_room(0)

    def write(self, key: FileKey, tokens: bytes, body: np.ndarray, used: int) -> bool:
        """Write what is not there yet; whether it was written. `used` as in `use`.

        Where a folder or a device has the name of the file, this one is left out from then on.
        Raises OSError or UsageError where the disk does not take it.
        body: uint8 [n]
        """
        nbytes = file_bytes(key, body.nbytes)
        if key in self.index or key in self._ignored or room_of(nbytes) > self.max_bytes:
            return False
        self._make_room(room_of(nbytes))
        before = self._mtime()
        try:
            self._write_file(key, tokens, body, used)
        except (FileExistsError, IsADirectoryError) as error:  # it says nothing about the disk
            self._forget(key, error.strerror or str(error))
            self._ignored.add(key)
            return False
        self.num_written += nbytes
        self.index.add(key, FileUse(nbytes, used))
        if key.kind == "rows":  # a shorter block of the same tokens is of use only to its rest
            for shorter in self.index.beginnings("rows", key.before, tokens):
                has_rest = shorter._replace(kind="rest") in self.index
                if shorter.num_tokens < key.num_tokens and not has_rest:
                    self._remove(shorter)
        self._own_change(before)
        return True

    def _write_file(self, key: FileKey, tokens: bytes, body: np.ndarray, used: int) -> None:
        path = self.path / key.name
        try:
            write(path, self.identity, key, tokens, body, used)
        except FileNotFoundError:  # somebody removed the folder, or the unfinished file
            private_folder(self.path)
            self._seen = -1
            write(path, self.identity, key, tokens, body, used)

    def use(self, key: FileKey, used: int) -> None:
        """A file was of use at the time `used`, nanoseconds, here or in memory."""
        use = self.index.get(key)
        if use is None:
            return
        try:
            os.utime(self.path / key.name, ns=(used, used), follow_symlinks=False)
        except FileNotFoundError:
            self.index.discard(key)
        except OSError:
            pass  # it is as old as it was
        else:
            self.index.add(key, FileUse(use.nbytes, used))

    def read(self, key: FileKey, tokens: bytes) -> np.ndarray | None:
        """What a file holds; uint8. None where it is gone, or damaged, with a line in the log.

        A full folder gives files up while others are read, and other workers do too: what is gone
        is a miss and no error.
        """
        path = self.path / key.name
        try:
            body = read(path, self.identity, key, tokens, self._row_bytes)
        except ValueError as error:
            self._forget(key, str(error))
            with contextlib.suppress(OSError):
                path.unlink()
        except FileNotFoundError:
            self.index.discard(key)
            self._seen = -1  # more may be gone
        except MemoryError as error:
            self._forget(key, str(error))
            self._seen = -1  # the file is well
        except OSError as error:
            self._forget(key, error.strerror or str(error))
            if error.errno in PASSING:
                self._seen = -1
            else:
                self._ignored.add(key)
        else:
            self.num_read += file_bytes(key, body.nbytes)
            return body
        return None

    def _forget(self, key: FileKey, reason: str) -> None:
        self.num_errors += 1
        self.index.discard(key)
        self._log.warning("a kept block cannot be used", file=key.name, reason=reason)

    def _list(self, entry: os.DirEntry[str], files: dict[FileKey, FileUse]) -> None:
        """Enter one of the folder's files, or remove it if nobody needs it."""
        key = parse_name(entry.name)
        if key is None and not _is_unfinished(entry.name):
            return
        status = entry.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return
        if key is not None and room_of(status.st_size) <= self.max_bytes:
            if key not in self._ignored:
                files[key] = FileUse(status.st_size, status.st_mtime_ns)
        elif key is not None:
            Path(entry.path).unlink()
        else:
            sweep(Path(entry.path))

    def _make_room(self, nbytes: int) -> None:
        """Remove the files that were not used for the longest time, if there are too many."""
        if self._num_bytes + nbytes <= self.max_bytes:
            return
        before = self._mtime()
        target = max(self.max_bytes - nbytes - int(self.max_bytes * _FREED_AT_ONCE), 0)
        others = sorted(self._others(), key=lambda other: other[1].used)
        self._other_bytes = sum(room_of(use.nbytes) for _, use in others)
        for key in self.index.oldest_first():
            own = self.index.get(key)
            while others and own is not None and others[0][1].used < own.used:
                if self._num_bytes <= target:
                    break
                self._remove_other(*others.pop(0))
            if self._num_bytes <= target:
                break
            self._remove(key)
        for path, use in others:
            if self._num_bytes <= target:
                break
            self._remove_other(path, use)
        self._own_change(before)

    @property
    def _num_bytes(self) -> int:
        return self.index.num_bytes + self._other_bytes

    def _others(self) -> list[tuple[Path, FileUse]]:
        """Blocks of other models, and of other builds of llama.cpp, in the same folder."""
        found: list[tuple[Path, FileUse]] = []
        for other in entries(self.path.parent):
            if other.name == self.path.name or not _FOLDER.fullmatch(other.name):
                continue
            for entry in entries(other.path):
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
                        continue
                    if _is_unfinished(entry.name):
                        sweep(Path(entry.path))
                    elif parse_name(entry.name) is not None:
                        use = FileUse(status.st_size, status.st_mtime_ns)
                        found.append((Path(entry.path), use))
        return found

    def _remove_other(self, path: Path, use: FileUse) -> None:
        self._other_bytes -= room_of(use.nbytes)
        with contextlib.suppress(OSError):
            path.unlink()
            path.parent.rmdir()  # where it was the last one

    def _remove(self, key: FileKey) -> None:
        self.index.discard(key)
        with contextlib.suppress(OSError):
            (self.path / key.name).unlink()

    def _mtime(self) -> int:
        """The folder's mtime, nanoseconds; 0 where it is gone."""
        try:
            return self.path.stat().st_mtime_ns
        except OSError:
            return 0

    def _own_change(self, before: int) -> None:
        """We changed the folder, whose mtime was `before`: no reason to list it."""
        if before == self._seen:
            self._seen = self._mtime()
