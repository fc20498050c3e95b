"""The Hub client's cache of one repository. Its layout is documented, and other programs use it.

    models--ORG--REPO/refs/REVISION            the commit that a branch or tag stood for
                     /snapshots/COMMIT/FILE    a link to
                     /blobs/CHECKSUM           the bytes
                     /blobs/CHECKSUM.partial   the part of them that `worker pull` has so far

A file gets its name in a snapshot when all its bytes are here and checked.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from huggingface_hub import constants

from worker.errors import UsageError
from worker.files import atomic_write, entries, take_name
from worker.gguf.split_name import is_gguf

_COMMIT = re.compile(r"[0-9a-f]{40}")


class RepoCache:
    """The folder of one repository. It need not exist."""

    def __init__(self, repo: str) -> None:
        """Raises UsageError where nothing tells where the cache is."""
        if constants.HF_HUB_CACHE.startswith("~"):  # the client would make a folder of that name
            raise UsageError(
                "There is no home folder, in which the Hub's cache would be.",
                hint="Set HF_HOME to a folder that can be written to, or HOME.",
            )
        self.folder = Path(constants.HF_HUB_CACHE) / f"models--{repo.replace('/', '--')}"

    def find(self, revision: str, files: tuple[str, ...]) -> Path | None:
        """The path of the first of `files`, or None unless all of them are here from one commit.

        The commit that the branch or tag stood for last is looked at first, then all others.
        """
        for snapshot in self._snapshots(revision):
            if all((snapshot / file).is_file() for file in files):
                return snapshot / files[0]
        return None

    def models(self, revision: str) -> tuple[Path, dict[str, int]]:
        """The best snapshot that has .gguf files, and these by their place in it, with their
        bytes."""
        for snapshot in self._snapshots(revision):
            found = sorted(
                Path(place, name)
                for place, _, names in os.walk(snapshot)
                for name in names
                if is_gguf(name)
            )
            sizes = {
                path.relative_to(snapshot).as_posix(): status.st_size
                for path in found
                if (status := _status(path)) is not None and stat.S_ISREG(status.st_mode)
            }
            if sizes:
                return snapshot, sizes
        return self.folder, {}

    def blob(self, checksum: str) -> Path:
        """The path for the bytes of that checksum."""
        return self.folder / "blobs" / checksum

    def pointer(self, commit: str, file: str) -> Path:
        """The path under which a file of a commit is used."""
        return self.folder / "snapshots" / commit / file

    def publish(self, blob: Path, commit: str, file: str) -> Path:
        """Give checked bytes the name that the commit has for them; returns the path to use. Raises
        OSError."""
        pointer = self.pointer(commit, file)
        if pointer.is_symlink() or pointer.exists():
            return pointer
        pointer.parent.mkdir(parents=True, exist_ok=True)
        try:
            if constants.HF_HUB_DISABLE_SYMLINKS:
                raise OSError("links are not wanted")
            pointer.symlink_to(os.path.relpath(blob, pointer.parent))
        except OSError:  # on a disk without links the file itself gets the name
            take_name(blob, pointer, durable=False)
        return pointer

    def set_revision(self, revision: str, commit: str) -> None:
        """Write down which commit a branch or tag stands for now, if that is not written yet."""
        ref = self.folder / "refs" / revision
        if revision == commit or (ref.is_file() and ref.read_text().strip() == commit):
            return
        ref.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(ref) as partial:
            partial.write_text(commit)

    def _snapshots(self, revision: str) -> Iterator[Path]:
        """Snapshots that `revision` may mean, the best first."""
        root = self.folder / "snapshots"
        if _COMMIT.fullmatch(revision):
            yield root / revision
            return
        told: Path | None = None
        try:
            commit = (self.folder / "refs" / revision).read_text().strip()
        except OSError:
            commit = ""
        if _COMMIT.fullmatch(commit):
            told = root / commit
            yield told
        found = ((Path(each), _status(Path(each))) for each in entries(root))
        others = [
            (status.st_mtime, path)
            for path, status in found
            if status is not None and stat.S_ISDIR(status.st_mode)
        ]
        yield from (path for _, path in sorted(others, reverse=True) if path != told)


def _status(path: Path) -> os.stat_result | None:
    """What a path is; None: nothing, or another process has just removed it."""
    try:
        return path.stat()
    except OSError:
        return None
