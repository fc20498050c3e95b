"""Blocks on disk: written by a thread of its own, so that nobody waits for it."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from worker import log
from worker.cache.block import CHAIN_BYTES
from worker.cache.block_file import FileKey
from worker.cache.folder import PASSING, BlockFolder
from worker.errors import UsageError

# Seconds between two looks at what other workers have written.
_LOOK_S = 1.0
# How long the first question after the start waits until the folder is listed. 10,000 files take
# about 40 ms, on a busy machine several times as long, and to read a prompt again longer still.
# Usually the model is still being loaded meanwhile.
_FIRST_LIST_S = 1.0
# What waits to be written at most, bytes, unless less is said.
MAX_WAITING = 256 << 20
_MAX_USES = 1 << 16
# How much older the files of a block are made than those of the block before it, nanoseconds. So
# the end of a conversation leaves before its beginning, without which the end is of no use.
_STEP_NS = 2_000
# Seconds without writing after the disk did not take a file.
_PAUSE_S = 60.0


class DiskItem(NamedTuple):
    """A block's rows or a rest, as they are handed over.

    tokens  the tokens of the block that the item is for
    depth   how many blocks lead to the end of this one
    """

    key: FileKey
    tokens: bytes
    body: np.ndarray
    depth: int

    def mtime_at(self, now: int) -> int:
        """The mtime of its file when it is used now, nanoseconds.

        A rest is older than the rows that it needs.
        """
        return now - self.depth * _STEP_NS - (self.key.kind == "rest") * _STEP_NS // 2


class Disk:
    """The blocks of one model in a folder. The engine asks and reads, the thread writes.

    Once it is made, nothing here raises: what cannot be read is not there, and when the disk does
    not take a file, nothing is written for a minute.

    Arguments are those of `BlockFolder`, and

    max_waiting  bytes of host memory for what waits to be written. A slow disk may be that far
                 behind; what does not fit is not written.

    Raises UsageError where the folder cannot be made or written to.
    """

    def __init__(
        self,
        folder: Path,
        max_bytes: int,
        identity: bytes,
        row_bytes: int,
        *,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        self._max_waiting = max_waiting
        self.folder = BlockFolder(folder, max_bytes, identity, row_bytes)
        self.origin = self.folder.identity[:CHAIN_BYTES]  # the hash of no tokens
        self._change = threading.Condition()
        self._to_write: deque[tuple[DiskItem, int]] = deque()  # and when it was used
        self._to_use: deque[tuple[FileKey, int]] = deque(maxlen=_MAX_USES)
        self._waiting: set[FileKey] = set()  # what _to_write holds, and the one being written
        self._waiting_bytes = 0
        self._num_failed = 0  # files that were not written
        self._closing = False
        # Until then nothing is written, by time.monotonic; 0: the disk took the last file.
        self._resumes = 0.0
        self._listed = threading.Event()
        self._patience = _FIRST_LIST_S
        self._thread = threading.Thread(target=self._run, name="cache-disk", daemon=True)
        self._thread.start()

    @property
    def num_errors(self) -> int:
        """Files that could not be used or not be written since the start."""
        return self.folder.num_errors + self._num_failed

    def longest(self, kind: str, before: bytes, tokens: bytes) -> FileKey | None:
        """The file of the most tokens that `tokens` begins with; `before`: hash of all before.

        Right after the start it waits a little, once, for the folder to be listed.
        """
        if self._patience and not self._listed.wait(self._patience):
            self._patience = 0
        return self.folder.index.longest(kind, before, tokens)

    def nbytes(self, key: FileKey) -> int:
        """Length of a file; 0 where it is gone."""
        use = self.folder.index.get(key)
        return use.nbytes if use is not None else 0

    def offer(self, items: Sequence[DiskItem]) -> None:
        """These items, parents first, are of use now. Those that are not there will be written.

        What does not fit the queue is not written, nor what follows it: it counts as an error.
        """
        now = time.time_ns()
        with self._change:
            for at, item in enumerate(items):
                if item.key in self.folder.index:
                    self._to_use.append((item.key, item.mtime_at(now)))
                    if item.key.kind == "rest":  # and the rows that it was written with
                        self._to_use.append((item.key._replace(kind="rows"), item.mtime_at(now)))
                elif item.key not in self._waiting and not self._is_pausing():
                    if self._waiting_bytes + item.body.nbytes > self._max_waiting:
                        self._num_failed += len(items) - at
                        break
                    self._waiting_bytes += item.body.nbytes
                    self._waiting.add(item.key)
                    self._to_write.append((item, item.mtime_at(now)))
            self._change.notify()

    def close(self, seconds: float, items: Iterable[DiskItem]) -> None:
        """Write what waits and those of `items` that are not there, in this order, for `seconds`
        at most."""
        deadline, now = time.monotonic() + seconds, time.time_ns()
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            return
        waiting = [item for item, _ in self._to_write]
        for item in itertools.chain(waiting, items):
            if self._is_pausing() or time.monotonic() > deadline:
                break
            self._write(item, item.mtime_at(now))

    def check_integrity(self) -> None:
        """Raise AssertionError unless the books fit together."""
        self.folder.index.check_integrity()
        with self._change:
            assert {item.key for item, _ in self._to_write} <= self._waiting
            total = sum(item.body.nbytes for item, _ in self._to_write)
            assert total <= self._waiting_bytes <= self._max_waiting, (total, self._waiting_bytes)

    def _run(self) -> None:
        look = 0.0
        while not self._closing:
            if time.monotonic() >= look:
                self.folder.refresh()
                look = time.monotonic() + _LOOK_S
                self._listed.set()
            with self._change:
                if not (self._to_write or self._to_use or self._closing):
                    self._change.wait(look - time.monotonic())
                task = self._to_write.popleft() if self._to_write else None
                uses = list(self._to_use)
                self._to_use.clear()
            for key, used in uses:
                self.folder.use(key, used)
            if task is not None:
                self._write(*task)
            with self._change:
                if task is not None:
                    self._waiting.remove(task[0].key)
                    self._waiting_bytes -= task[0].body.nbytes
                self._change.notify_all()

    def _is_pausing(self) -> bool:
        return bool(self._resumes) and time.monotonic() < self._resumes

    def _write(self, item: DiskItem, used: int) -> None:
        if self._is_pausing():
            return
        try:
            is_written = self.folder.write(item.key, item.tokens, item.body, used)
        except (OSError, UsageError) as error:
            self._num_failed += 1
            cause = error if isinstance(error, OSError) else error.__cause__
            if isinstance(cause, OSError) and cause.errno in PASSING:
                return
            if not self._resumes:
                log.get("cache").error(
                    "the cache is not written to disk; it is tried again each minute",
                    folder=str(self.folder.path),
                    reason=str(error),
                )
            self._resumes = time.monotonic() + _PAUSE_S
        else:
            if is_written and self._resumes:
                self._resumes = 0.0
                log.get("cache").info("the cache is written to disk again")
