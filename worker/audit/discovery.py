"""The models that were named, and those in folders that were named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from worker.errors import WorkerError
from worker.gguf import foreign
from worker.gguf.split_name import SplitName, all_files, is_gguf


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A model to judge: its only or first file.

    found  it was not named, it lies in a folder that was
    size   bytes of all its files, as far as they are there
    error  why there is nothing to open
    """

    path: Path
    found: bool = False
    size: int = 0
    error: WorkerError | None = None


def candidates(texts: Sequence[str], resolve: Callable[[str], Path]) -> list[Candidate]:
    """What `texts` name, in their order; folders are searched for *.gguf, links followed.

    resolve: text -> path of a file or folder; may raise WorkerError, which becomes the candidate's
    The files of a split model are one candidate where its first file is among them. A file that two
    names in folders lead to is taken once.
    """
    all_found: list[Candidate] = []
    for text in texts:
        try:
            path = resolve(text)
            is_folder = path.is_dir()
        except (WorkerError, OSError, ValueError) as error:
            known = error if isinstance(error, WorkerError) else foreign.unopenable(text, error)
            all_found.append(Candidate(path=Path(text), error=known))
            continue
        if is_folder:
            inside = list(_inside(path))
            all_found += inside or [Candidate(path=path, error=foreign.directory(path))]
        else:
            all_found.append(Candidate(path=path, size=_size(path)))
    return list(_without_parts(all_found))


def _inside(top: Path) -> Iterator[Candidate]:
    """The candidates below a folder, by name; folders that cannot be read among them."""
    failures: list[OSError] = []
    searched: set[tuple[int, int]] = set()  # a link may lead back up
    for place, names, files in os.walk(top, onerror=failures.append, followlinks=True):
        try:
            status = Path(place).stat()
        except OSError as error:
            failures.append(error)
            continue
        if (status.st_dev, status.st_ino) in searched:
            names.clear()
            continue
        searched.add((status.st_dev, status.st_ino))
        names.sort()
        for name in sorted(files):
            # What macOS leaves beside a file on foreign disks is called ._NAME.
            if is_gguf(name) and not name.startswith("._"):
                path = Path(place, name)
                yield Candidate(path=path, found=True, size=_size(path))
    for failure in failures:
        place = str(failure.filename)
        yield Candidate(path=Path(place), found=True, error=foreign.unopenable(place, failure))


def _without_parts(all_found: list[Candidate]) -> Iterator[Candidate]:
    """Leave out later files of split models, and what a folder has a second time."""
    paths = {candidate.path for candidate in all_found}
    seen: set[str] = set()
    for candidate in all_found:
        path = candidate.path
        split = SplitName.parse(path.name)
        if split and not split.is_first and path.with_name(split.siblings()[0]) in paths:
            continue
        real = os.path.realpath(path)
        if candidate.found and real in seen:
            continue
        seen.add(real)
        yield candidate


def _size(path: Path) -> int:
    """Bytes of all files of the model, as far as they can be seen."""
    total = 0
    for name in all_files(path.name):
        try:
            total += path.with_name(name).stat().st_size
        except (OSError, ValueError):
            continue
    return total
