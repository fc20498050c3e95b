"""From checking to loading: the files that were checked are the files that are loaded."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from worker.gguf.header import Identity, ModelFile, refuse
from worker.gguf.source import opened

_DESCRIPTORS = Path("/proc/self/fd")


@contextmanager
def pinned(files: Sequence[ModelFile]) -> Generator[list[str]]:
    """Paths that lead to the very files that were read, whatever is renamed over them.

    On Linux the paths go through open descriptors and are good inside the block: one that another
    file is renamed over still leads to the old one. Elsewhere they are the plain paths.

    Raises CHANGED where a file was replaced, cut or written since it was read, or where it is
    written while the block runs.
    """
    with ExitStack() as stack:
        descriptors = [stack.enter_context(opened(file.path)) for file in files]
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
                "CHANGED", f"{file.path} {how} after it was checked.",
                got=now.size, limit=file.size,
                hint="Wait until it is complete and start again.",
            )  # fmt: skip
