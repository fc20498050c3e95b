"""Pulling a model: which files to bring, whether they fit the disk, and when they are usable."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from worker.errors import DownloadError, ModelFileError, UsageError
from worker.files import check_room, scratch_folder
from worker.gguf.split_name import all_files
from worker.hub import client as hub
from worker.hub.cache import RepoCache
from worker.hub.catalog import Catalog, Entry
from worker.hub.choice import choose, companions, offers, only
from worker.hub.errors import unwritable
from worker.hub.name import Named, Reference, Remote
from worker.machine import Memory
from worker.model.config import load_config
from worker.model.projector import choose_projector, load_projector

PullStage = Literal["downloading", "checking"]
PullProgress = Callable[[str, PullStage, int, int], object]
"""Is called with a file's name, what happens to it, its bytes done so far and all its bytes."""


class WantedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The files of one model.

    name       how the user can call the model
    projector  that lies beside them; None: none is wanted, or there
    sha256     checksums that the catalogue demands, by file
    """

    name: str
    repo: str
    revision: str
    quant: str
    files: tuple[str, ...]
    projector: str | None = None
    sha256: dict[str, str] = {}


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the Hub has of an entry's files.

    found    how many it has
    missing  those that it does not have
    problem  why they cannot be looked up, or None
    """

    found: int
    missing: tuple[str, ...]
    problem: str | None

    @property
    def is_right(self) -> bool:
        """Whether all files are there."""
        return not self.missing and self.problem is None


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is here, checked.

    path           the file to open
    files          each file's path, by its name on the Hub
    checksums      sha256 by name; git's hash for a file outside of large-file storage
    fetched_bytes  bytes that came over the network in this call
    """

    name: str
    repo: str
    commit: str
    quant: str
    path: str
    files: dict[str, str]
    checksums: dict[str, str]
    size_bytes: int
    fetched_bytes: int


def find(
    reference: Reference, catalog: Catalog, memory: Memory, *, projector: bool = True
) -> WantedFile:
    """Which files to bring. Where the reference names no encoding, `choose` takes one.

    projector: with the one that lies beside the model

    Raises UsageError for a reference to no model on the Hub, DownloadError, DoesNotFitError.
    """
    if isinstance(reference, Path):
        raise UsageError(
            f"{reference} is a file, not a model on the Hub.",
            hint="Name one of `worker pull --list`, or ORGANIZATION/REPOSITORY:Q4_K_M.",
        )
    if isinstance(reference, Named):
        found = _file_of(reference, catalog.find(reference.name), memory)
    else:
        found = _remote(reference, memory)
    return found if projector else msgspec.structs.replace(found, projector=None)


def check(entry: Entry) -> Checked:
    """Compare an entry of the catalogue with its repository; nothing is downloaded.

    Raises DownloadError where the Hub cannot be asked at all.
    """
    try:
        there = hub.list_models(entry.repo, entry.revision)
    except DownloadError as error:
        # That one repository is gone says nothing about the others. Without a network, though, none
        # can be checked.
        if error.code not in ("REPO_NOT_FOUND", "REVISION_NOT_FOUND", "GATED"):
            raise
        return Checked(found=0, missing=(), problem=error.message)
    files = [file for label in entry.labels for file in all_files(entry.first_file(label))]
    files += filter(None, [entry.mmproj])
    missing = tuple(file for file in files if file not in there)
    return Checked(found=len(files) - len(missing), missing=missing, problem=None)


def pull(wanted: WantedFile, report: PullProgress) -> Pulled:
    """Bring the files that are not here yet.

    Files that are here are read, to check them. The files get their names in the cache when all of
    them have the right checksum and their headers are those of a model.
    Raises DownloadError, DiskSpaceError, ModelFileError.
    """
    cache = RepoCache(wanted.repo)
    try:
        return _pull(wanted, cache, report)
    except OSError as error:
        raise unwritable(error) from error


def _pull(wanted: WantedFile, cache: RepoCache, report: PullProgress) -> Pulled:
    first = hub.look_up(wanted.repo, wanted.revision, wanted.files[0])
    # A branch can move between two questions. So all files are looked up in the first one's commit.
    others = [*wanted.files[1:], *filter(None, [wanted.projector])]
    found = [first, *(hub.look_up(wanted.repo, first.commit, path) for path in others)]
    for file in found:
        _check_promise(file, wanted.sha256.get(file.path))
    missing = [file for file in found if not _is_here(file, cache, report)]
    need = {file: max(0, file.size - hub.so_far(cache.blob(file.checksum))) for file in missing}
    check_room(cache.folder, sum(need.values()), wanted.name)
    for file in missing:
        _bring(file, cache, report)
    if missing:
        try:
            _check_headers(found, cache, wanted.projector)
        except ModelFileError:
            for file in missing:
                cache.blob(file.checksum).unlink(missing_ok=True)
            raise
    paths = {
        file.path: str(cache.publish(cache.blob(file.checksum), file.commit, file.path))
        for file in found
    }
    if missing:
        cache.set_revision(wanted.revision, first.commit)
    else:  # one may look in what others keep
        with contextlib.suppress(OSError):
            cache.set_revision(wanted.revision, first.commit)
    return Pulled(
        name=wanted.name,
        repo=wanted.repo,
        commit=first.commit,
        quant=wanted.quant,
        path=paths[first.path],
        files=paths,
        checksums={file.path: file.checksum for file in found},
        size_bytes=sum(file.size for file in found),
        fetched_bytes=sum(need.values()),
    )


def _file_of(wanted: Named, entry: Entry, memory: Memory) -> WantedFile:
    name, quant = wanted.name.lower(), wanted.quant
    if quant is not None:
        entry.check_has(quant, name)
    else:
        sizes = hub.list_models(entry.repo, entry.revision)
        complete = {
            label: sum(sizes[part] for part in all_files(entry.first_file(label)))
            for label in entry.labels
            if all(part in sizes for part in all_files(entry.first_file(label)))
        }
        if not complete:
            raise DownloadError(
                f"{entry.repo} has none of the files that the catalogue names for {name}.",
                hint=f"`worker pull --check {name}` lists them; `worker pull {entry.repo}:Q4_K_M` "
                "chooses from what is there.",
                code="FILE_NOT_FOUND",
            )
        quant = choose(complete, memory, name)
    return WantedFile(
        name=f"{name}:{quant}",
        repo=entry.repo,
        revision=entry.revision,
        quant=quant,
        files=all_files(entry.first_file(quant)),
        projector=entry.mmproj,
        sha256=entry.sha256,
    )


def _remote(wanted: Remote, memory: Memory) -> WantedFile:
    repo, revision = wanted.repo, wanted.revision
    files = hub.list_models(repo, revision)
    no_models = companions(files)
    if wanted.file is not None:
        return WantedFile(
            name=f"hf:{repo}@{revision}::file={wanted.file}",
            repo=repo,
            revision=revision,
            quant="",
            files=all_files(wanted.file),
            projector=choose_projector(no_models - {wanted.file}, wanted.file),
        )
    found = offers(files, no_models)
    if not found:
        raise DownloadError(
            f"{repo} has no GGUF model.",
            hint="Look for a repository whose name ends in GGUF.",
            code="FILE_NOT_FOUND",
        )
    quant = wanted.quant
    if quant is None:
        quant = choose({offer.quant: offer.size for offer in found}, memory, repo)
    offer = only(found, quant, repo)
    at = "" if revision == "main" else f"@{revision}"
    return WantedFile(
        name=f"{repo}{at}:{quant}" if quant else f"{repo}{at}",
        repo=repo,
        revision=revision,
        quant=quant,
        files=offer.files,
        projector=choose_projector(no_models, offer.files[0]),
    )


def _check_promise(file: hub.HubFile, expected: str | None) -> None:
    if expected is not None and file.checksum != expected:
        raise DownloadError(
            f"The Hub has another {file.path} than the catalogue names: its checksum is "
            f"{file.checksum}, not {expected}.",
            hint="Correct the catalogue's sha256, if the publisher replaced the file.",
            code="WRONG_CHECKSUM",
        )


def _is_here(file: hub.HubFile, cache: RepoCache, report: PullProgress) -> bool:
    """Whether the file is here and has the right checksum; a damaged one is removed."""
    for path in (cache.blob(file.checksum), cache.pointer(file.commit, file.path)):
        if path.is_file():
            if hub.is_right(
                file, path, lambda done: report(file.path, "checking", done, file.size)
            ):
                return True
            path.unlink()
    return False


def _bring(file: hub.HubFile, cache: RepoCache, report: PullProgress) -> None:
    hub.download(
        file,
        cache.blob(file.checksum),
        lambda done: report(file.path, "downloading", done, file.size),
        lambda done: report(file.path, "checking", done, file.size),
    )


def _check_headers(files: list[hub.HubFile], cache: RepoCache, projector: str | None) -> None:
    """Raise ModelFileError unless the files are a model, and its projector; it looks at them side
    by side, under their own names."""
    with scratch_folder(cache.folder) as folder:
        for file in files:
            blob, pointer = cache.blob(file.checksum), cache.pointer(file.commit, file.path)
            name = folder / Path(file.path).name
            name.symlink_to((blob if blob.exists() else pointer).absolute())
        load_config(folder / Path(files[0].path).name, purpose="inspect")
        if projector is not None:
            load_projector(folder / Path(projector).name)
