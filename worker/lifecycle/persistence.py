"""What is kept over a restart, for one model: the states of ended sequences, and texts to guess
from."""

from __future__ import annotations

import contextlib
import hashlib
import stat
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from worker import log
from worker.cache.disk import MAX_WAITING, Disk
from worker.cache.store import Store
from worker.engine.drafts.recall import CAPACITY, Recall
from worker.errors import UsageError
from worker.files import atomic_write, private_folder
from worker.lifecycle.prepared import Prepared
from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.memory.saved_states import disk_limit
from worker.settings import Settings

# Pieces of a file that its fingerprint looks at, and their length. All bytes of a file of 5 GB
# take 5 s; these take 10 ms. Other weights differ everywhere, and so does another quant level.
_PIECES = 512
_PIECE_BYTES = 16_384
_log = log.get("cache")


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
    return repr(
        (
            fingerprint([Path(file.path) for file in prepared.config.files]),
            prepared.config.overrides,
            settings.yarn,
            settings.cache_type_k,
            settings.cache_type_v,
            build.bindings,
            build.variant,  # another one rounds otherwise
            signature,
            *(() if prepared.control is None else (prepared.control.digest,)),
        )
    )


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


class Recalled:
    """A Recall and its file in --cache-dir; without that folder it is forgotten with the process.

    A file that is damaged, or has tokens of another model, is put aside.
    """

    def __init__(self, settings: Settings, prepared: Prepared) -> None:
        """Raises UsageError where the folder cannot be used."""
        self.recall = Recall()
        self._path: Path | None = None
        if settings.cache_dir is not None:
            model = fingerprint(Path(file.path) for file in prepared.config.files)
            folder = private_folder(Path(settings.cache_dir) / "recall")
            self._path = folder / f"{model}.tokens"
            tokenizer = prepared.config.tokenizer
            self._read(self._path, 0 if tokenizer is None else tokenizer.vocab_size)

    def _read(self, path: Path, vocab_size: int) -> None:
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode) or not 0 < status.st_size <= 4 * CAPACITY:
                raise ValueError("it holds no tokens")
            texts = np.fromfile(path, np.int32)
            if not len(texts) or texts.max() >= vocab_size:
                raise ValueError("its tokens are those of another model")
            self.recall.read(texts)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("texts for drafting are put aside", file=str(path), why=str(error))
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".bad"))

    def write(self) -> None:
        """Keep it for the next start, in one piece or not at all."""
        texts = self.recall.texts()
        if self._path is None or not len(texts):
            return
        try:
            private_folder(self._path.parent)  # somebody may have removed it
            with atomic_write(self._path) as partial:
                texts.tofile(partial)
        except (OSError, UsageError) as error:
            _log.warning("texts for drafting are not saved", why=str(error))
