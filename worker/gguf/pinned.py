"""From validation to loading: the files that were checked are the files that are loaded."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from worker.gguf.foreign import unopenable
from worker.gguf.header import Identity, ModelFile, refuse
from worker.gguf.source import opened

_DESCRIPTORS = Path("/proc/self/fd")


def verify_unchanged(path: str | os.PathLike[str], identity: Identity) -> None:
    """Raise CHANGED where `path` is not, or no longer, the file that was read."""
    try:
        now = Identity.of(Path(path).stat())
    except OSError as error:
        raise unopenable(os.fspath(path), error) from error
    _compare(os.fspath(path), now, identity)


@contextmanager
def pinned(files: Sequence[ModelFile]) -> Generator[list[str]]:
    """Paths that lead to the very files that were read, whatever is renamed over them.

    Raises CHANGED where one of them was replaced, cut or written since. On Linux the paths go
    through open descriptors and are good within the block; elsewhere they are the plain paths,
    checked once.
    """
    with ExitStack() as stack:
        paths: list[str] = []
        for file in files:
            fd = stack.enter_context(opened(file.path))
            _compare(file.path, Identity.of(os.fstat(fd)), file.identity)
            paths.append(str(_DESCRIPTORS / str(fd)) if _DESCRIPTORS.is_dir() else file.path)
        yield paths


def _compare(path: str, now: Identity, then: Identity) -> None:
    if now == then:
        return
    how = "became shorter" if now.size < then.size else "was replaced or written"
    raise refuse(
        "CHANGED", f"{path} {how} after it was checked.", got=now.size, limit=then.size,
        hint="Wait until it is complete and start again.",
    )  # fmt: skip
