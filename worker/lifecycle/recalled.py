"""What may be guessed from other texts, over a restart."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

import numpy as np

from worker import log
from worker.engine.drafts.recall import CAPACITY, Recall
from worker.files import private_folder, written_whole
from worker.lifecycle.kept import fingerprint
from worker.lifecycle.prepared import Prepared
from worker.settings import Settings

_log = log.get("cache")


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
            if not len(texts) or texts.min() < -1 or texts.max() >= vocab_size:
                raise ValueError("its tokens are those of another model")
            self.recall.read(texts)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("texts to guess from are put aside", file=str(path), why=str(error))
            with contextlib.suppress(OSError):
                path.replace(path.with_suffix(".bad"))

    def write(self) -> None:
        """Keep it for the next start, in one piece or not at all."""
        texts = self.recall.texts()
        if self._path is None or not len(texts):
            return
        try:
            with written_whole(self._path) as partial:
                texts.tofile(partial)
        except OSError as error:
            _log.warning("texts to guess from are not kept", why=str(error))
