"""The file that a reference to a model means, among the files on this machine.

Nothing is downloaded, so a worker needs no network to start.
"""

from __future__ import annotations

from pathlib import Path

from worker.errors import DoesNotFitError, ModelFileError
from worker.gguf.split_name import all_files
from worker.hub.cache import RepoCache
from worker.hub.catalog import Catalog, Entry
from worker.hub.choice import choose, companions_here, offers, only, smallest
from worker.hub.name import Named, Reference, Remote
from worker.machine import Memory


def locate(reference: Reference, catalog: Catalog, memory: Memory) -> Path:
    """The first or only file of the model.

    Where the reference names no encoding, `choose` takes one of those that are here; where none of
    them fits, it is the smallest. Raises UsageError for an unknown name, ModelFileError
    (NOT_DOWNLOADED) for a model that has not been pulled.
    """
    if isinstance(reference, Path):
        return reference
    if isinstance(reference, Named):
        return _path_of(reference, catalog.find(reference.name), memory)
    return _remote(reference, memory)


def local_files(entry: Entry) -> dict[str, Path]:
    """Encoding -> first file, for the encodings of a catalogue's entry that are here."""
    cache = RepoCache(entry.repo)
    found = {
        label: cache.find(entry.revision, all_files(entry.first_file(label)))
        for label in entry.labels
    }
    return {label: path for label, path in found.items() if path is not None}


def _path_of(wanted: Named, entry: Entry, memory: Memory) -> Path:
    name = wanted.name.lower()
    if wanted.quant is not None:
        entry.check_has(wanted.quant, name)
    here = local_files(entry)
    if wanted.quant is not None:
        if wanted.quant not in here:
            raise _absent(f"{name}:{wanted.quant}")
        return here[wanted.quant]
    if not here:
        raise _absent(name)
    return here[_best({label: _size(path) for label, path in here.items()}, memory, name)]


def _remote(wanted: Remote, memory: Memory) -> Path:
    cache = RepoCache(wanted.repo)
    revision = "" if wanted.revision == "main" else f"@{wanted.revision}"
    name = f"{wanted.repo}{revision}"
    if wanted.file is not None:
        path = cache.find(wanted.revision, all_files(wanted.file))
        if path is None:
            raise _absent(f"hf:{wanted.repo}@{wanted.revision}::file={wanted.file}")
        return path
    snapshot, files = cache.models(wanted.revision)
    here = offers(files, companions_here(snapshot, files))
    if wanted.quant is not None:
        if not any(offer.quant == wanted.quant for offer in here):
            raise _absent(f"{name}:{wanted.quant}")
        offer = only(here, wanted.quant, wanted.repo)
    elif not here:
        raise _absent(name)
    else:
        best = _best({offer.quant: offer.size for offer in here}, memory, name)
        offer = only(here, best, wanted.repo)
    path = cache.find(wanted.revision, offer.files)
    if path is None:
        raise _absent(name)
    return path


def _best(sizes: dict[str, int], memory: Memory, name: str) -> str:
    try:
        return choose(sizes, memory, name)
    except DoesNotFitError:  # the memory plan will refuse it with exact figures
        return smallest(sizes)


def _size(path: Path) -> int:
    return sum(path.with_name(Path(part).name).stat().st_size for part in all_files(path.name))


def _absent(name: str) -> ModelFileError:
    return ModelFileError(
        "NOT_DOWNLOADED",
        f"{name} is not on this machine.",
        field="model",
        got=name,
        hint=f"Get it with `worker pull {name}`.",
    )
