"""What is kept between runs: quantised files, the reference's rows, finished sections.

    quants/HASH/NAME-TYPE.gguf   made from the file with that content, by type or as a fit
    fits/                        of the run at work: importance, what a fit needs meanwhile
    references/KEY/              rows of a reference
    stages/KEY.json              a section, under a hash of everything that bears on it
    hashes/KEY.json              a file's content hash, while its identity is the same

Files and rows together stay within a bound: the entry that was used longest ago goes first.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from worker.errors import UsageError
from worker.files import atomic_write, lock
from worker.gguf.header import Identity

DEFAULT_BYTES = 20 << 30
_READ = 8 << 20
# Timings of an interrupted run belong together; days later they would not.
MAX_AGE_S = 24 * 3600.0

_ELSEWHERE = "Set XDG_CACHE_HOME to a folder that can be written to."

T = TypeVar("T")


class _Hash(msgspec.Struct, frozen=True):
    identity: Identity
    sha256: str


class _Stored(msgspec.Struct, frozen=True):
    measured_at: float
    value: msgspec.Raw


class BenchCache:
    """The folder. One run at a time uses it; two would spoil each other's timings too."""

    def __init__(self, folder: Path, max_bytes: int = DEFAULT_BYTES) -> None:
        self.folder, self.max_bytes = folder, max_bytes

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Hold the folder. Raises UsageError while another run holds it, and where it cannot be
        written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = (self.folder / "lock").open("w")
        except OSError as error:
            raise UsageError(
                f"{self.folder} cannot be written to: {error.strerror}.", hint=_ELSEWHERE
            ) from None
        with file:
            if not lock(file):
                raise UsageError(
                    "Another `worker bench` is running, and two would disturb each other.",
                    hint="Wait until it is done.",
                    code="BUSY",
                )
            yield

    def clean(self) -> int:
        """Remove everything; the bytes that were freed."""
        freed = _size(self.folder)
        for name in ("quants", "references", "stages", "hashes", "fits"):
            remove(self.folder / name)
        return freed

    @contextlib.contextmanager
    def scratch(self) -> Generator[None]:
        """An empty folder `fits`, until the run ends."""
        folder = self.folder / "fits"
        remove(folder)
        folder.mkdir()
        try:
            yield
        finally:
            remove(folder)

    def sha256(self, path: Path) -> Generator[float, None, str]:
        """The hash of a file's content; yields the share done.

        The file is read again only when it has changed.
        """
        path = path.resolve()
        identity = Identity.of(path.stat())
        memo = self.folder / "hashes" / f"{key_of(str(path))}.json"
        known = _load(memo, _Hash)
        if known is not None and known.identity == identity:
            return known.sha256
        digest, done = hashlib.sha256(), 0
        with path.open("rb", buffering=0) as file:
            while data := file.read(_READ):
                digest.update(data)
                done += len(data)
                yield done / identity.size
        with contextlib.suppress(OSError):  # on a full disk it is read again next time
            _save(memo, _Hash(identity, digest.hexdigest()))
        return digest.hexdigest()

    def quant(self, sha256: str, maker: str, source: Path, type_name: str) -> Path:
        """The place of the source in another encoding, whether the file is there or not.

        maker: what quantises it, and with which matrix
        """
        folder = self.folder / "quants" / f"{sha256[:24]}-{maker}"
        return folder / f"{source.stem}-{type_name}.gguf"

    def reference(self, key: str) -> Path:
        return self.folder / "references" / key

    def use(self, entry: Path) -> None:
        """Note that an entry is used, so that other entries are removed first."""
        os.utime(entry)

    def make_room(self, nbytes: int, keep: frozenset[Path] = frozenset()) -> None:
        """Remove entries, the one used longest ago first, until `nbytes` more are within the bound
        or only `keep` is left."""
        entries = [*self.folder.glob("quants/*/*.gguf"), *self.folder.glob("references/*")]
        entries.sort(key=lambda entry: entry.stat().st_mtime)
        total = sum(map(_size, entries)) + nbytes
        for entry in entries:
            if total <= self.max_bytes:
                return
            if entry in keep:
                continue
            total -= _size(entry)
            remove(entry)

    def load(self, key: str, kind: type[T], max_age_s: float) -> T | None:
        """A section that is not older than that; None where there is none."""
        stored = _load(self._stage(key), _Stored)
        if stored is None or time.time() - stored.measured_at > max_age_s:
            return None
        try:
            return msgspec.json.decode(stored.value, type=kind)
        except msgspec.DecodeError:  # of an older version
            return None

    def save(self, key: str, value: Any, measured_at: float) -> None:
        """Keep a section; whole or not at all."""
        _save(self._stage(key), _Stored(measured_at, msgspec.Raw(msgspec.json.encode(value))))

    def forget(self, key: str) -> None:
        self._stage(key).unlink(missing_ok=True)

    def _stage(self, key: str) -> Path:
        return self.folder / "stages" / f"{key}.json"


def remove(entry: Path) -> None:
    """Remove a file or a folder, or nothing."""
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        entry.unlink(missing_ok=True)


def key_of(*parts: Any) -> str:
    """A hash of values; equal values have equal keys in every run."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()[:32]


def _size(entry: Path) -> int:
    files = (entry,) if entry.is_file() else entry.rglob("*")
    return sum(file.stat().st_size for file in files if file.is_file())


def _load(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError):
        return None


def _save(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as partial:
        partial.write_bytes(msgspec.json.encode(value))
