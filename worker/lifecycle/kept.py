"""Where the states of ended sequences are kept, for one model and one worker."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from worker.cache.disk import MAX_WAITING, Disk
from worker.cache.store import Store
from worker.lifecycle.prepared import Prepared
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.memory.kept import disk_limit
from worker.settings import Settings

# Pieces of a file that its fingerprint looks at, and their length. All bytes of a file of 5 GB
# take 5 s; these take 10 ms. Other weights differ everywhere, and so does another quant level.
_PIECES = 512
_PIECE_BYTES = 16_384


def open_store(settings: Settings, prepared: Prepared, backend: LlamaBackend) -> Store | None:
    """The store, with a folder on disk if one was asked for; None where nothing is kept.

    Raises UsageError where the folder cannot be used.
    """
    limit = prepared.plan.cache_bytes
    form = backend.state_form
    if not limit or form is None:
        return None
    disk = None
    if settings.cache_dir is not None:
        identity = identity_of(settings, prepared, form.signature)
        folder = Path(settings.cache_dir)
        # What waits to be written may have left the tree: both together stay within the limit.
        waiting = min(limit // 4, MAX_WAITING)
        limit -= waiting
        room, row_bytes = disk_limit(settings), form.row_bytes
        disk = Disk(folder, room, identity.encode(), row_bytes, max_waiting=waiting)
    return Store(limit, needs_rest=backend.shape.needs_rest, disk=disk)


def identity_of(settings: Settings, prepared: Prepared, signature: bytes) -> str:
    """What states have in common that can be restored in each other's place.

    signature: of their form
    """
    build = library.build()
    return repr((
        fingerprint([Path(file.path) for file in prepared.config.files]),
        prepared.config.overrides,
        settings.yarn,
        settings.cache_type_k,
        settings.cache_type_v,
        build.bindings,
        build.variant,  # another one rounds otherwise
        signature,
        *(() if prepared.control is None else (prepared.control.digest,)),
    ))  # fmt: skip


def fingerprint(files: Iterable[Path]) -> str:
    """What tells a model's files from those of another: their lengths, and pieces of them.

    Not their names and dates: a copy on another machine is the same model.
    """
    digest = hashlib.blake2b(digest_size=16)
    for path in files:
        size = path.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        step = max(_PIECE_BYTES, -(-size // _PIECES))
        with path.open("rb") as file:
            for place in (*range(0, size, step), max(0, size - _PIECE_BYTES)):
                file.seek(place)
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
