"""Checksums of files on the Hub, and which one a file on this machine must have.

A file in large-file storage is known by its sha256, any other by git's hash: sha1 over a short
head and the bytes. The Hub client's cache calls a file's bytes by its checksum.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from worker.hub.catalog import Entry

_BLOB = re.compile(r"[0-9a-f]{64}|[0-9a-f]{40}")


class Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None:
        """Add bytes."""
        ...

    def hexdigest(self) -> str:
        """The checksum of all bytes so far."""
        ...


class ExpectedDigest(NamedTuple):
    """The checksum that a file must have, and who says so."""

    checksum: str
    source: str


def digest_for(checksum: str, size: int) -> Digest:
    """What computes a checksum of that kind over a file of `size` bytes."""
    if len(checksum) == 64:
        return hashlib.sha256()
    return hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)


def promises(path: Path, entries: Iterable[Entry]) -> Iterator[ExpectedDigest]:
    """What is known of the file at `path`: by the Hub client's cache, by a catalogue's entries.

    In the cache an entry counts for the files of its repository. Elsewhere it counts for a file of
    its file's name, as long as no two entries say different things of that name.
    """
    real = path.resolve()
    if real.parent.name == "blobs" and _BLOB.fullmatch(real.name):
        yield ExpectedDigest(real.name, "the Hub's cache")
    place = _in_snapshot(path)
    known = {
        checksum
        for entry in entries
        for file, checksum in entry.sha256.items()
        if (place == (entry.repo, file) if place else Path(file).name == path.name)
    }
    if len(known) == 1:
        yield ExpectedDigest(known.pop(), "the catalogue")


def _in_snapshot(path: Path) -> tuple[str, str] | None:
    """Repository and file of a path in the cache: models--ORG--REPO/snapshots/COMMIT/FILE."""
    parts = path.absolute().parts
    for at, part in enumerate(parts[:-3]):
        if part.startswith("models--") and parts[at + 1] == "snapshots":
            return part.removeprefix("models--").replace("--", "/", 1), "/".join(parts[at + 3 :])
    return None
