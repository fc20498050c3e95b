"""Sequences that clients keep under the number of a slot, and in files of their own."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from worker.cache.slot_file import read_slot, write_slot
from worker.errors import (
    NotSupportedError,
    RequestError,
    StorageFullError,
    UnavailableError,
)
from worker.files import private_folder
from worker.lifecycle.persistence import identity_of

if TYPE_CHECKING:
    from worker.engine.thread import EngineThread
    from worker.lifecycle.prepared import Prepared
    from worker.llama.backend import LlamaBackend
    from worker.llama.states.state import StateForm
    from worker.settings import Settings

_LONGEST_NAME = 200  # bytes
_LONGEST_NUMBER = 40  # characters that an error repeats


class SlotMoved(NamedTuple):
    """What was saved or restored: tokens, bytes of the file, milliseconds."""

    num_tokens: int
    num_bytes: int
    ms: float


def named_slots(
    settings: Settings, prepared: Prepared, backend: LlamaBackend, engine: EngineThread
) -> NamedSlots:
    """Those of a worker. Raises UsageError where the folder of their files cannot be used."""
    folder, form = settings.slot_save_path, backend.state_form
    if folder is None or form is None:
        return NamedSlots(engine, None, "", None, can_erase=settings.cache_dir is None)
    return NamedSlots(
        engine,
        private_folder(Path(folder)),
        identity_of(settings, prepared, form.signature),
        form,
        can_erase=settings.cache_dir is None,
    )


class NamedSlots:
    """For the event loop's thread.

    A request that names a slot has no slot of its own here; what it said is known by its number, so
    that it can be saved, restored under any number, and erased.
    """

    def __init__(
        self,
        engine: EngineThread,
        folder: Path | None,
        identity: str,
        form: StateForm | None,
        *,
        can_erase: bool,
    ) -> None:
        """
        folder     of the files; None: nothing is saved
        identity   of model and settings whose states are the same
        form       of the model's states; there is one where there is a folder
        can_erase  nothing is kept on disk besides
        """
        self._engine = engine
        self._folder = folder
        self._identity = hashlib.blake2b(identity.encode(), digest_size=32).digest()
        self._form = form
        self._can_erase = can_erase
        self._known: dict[int, tuple[bytes, np.ndarray]] = {}

    def check(self, number: int, param: str = "id_slot", *, asked: str = "") -> None:
        """Raise RequestError where there is no such slot. asked: how the client wrote the number"""
        count = self._engine.snapshot.max_running
        if not 0 <= number < count:
            raise RequestError(
                f"There is no slot {asked[:_LONGEST_NUMBER] or number}.",
                param=param,
                hint=f"Name one from 0 to {count - 1}.",
            )

    def note(self, number: int, key: bytes, tokens: tuple[int, ...]) -> None:
        """What the newest request said that named the slot."""
        self._known[number] = key, np.array(tokens, np.int32)

    async def save(self, number: int, name: str | None) -> SlotMoved:
        """Write its state. Raises RequestError; StorageFullError, UnavailableError if the folder
        takes no file."""
        path, form = self._place(name)
        key, tokens = self._sequence(number)
        began = time.monotonic()
        engine = self._engine.engine
        kept = await self._engine.between_steps(lambda: engine.take_out(tokens, key, form.shorten))
        if kept is None:
            raise RequestError(f"Of slot {number} nothing is kept any more.", param="id_slot")
        try:
            size = await asyncio.to_thread(write_slot, path, self._identity, kept)
        except OSError as error:
            raise _unwritten(error) from error
        return SlotMoved(kept.num_tokens, size, (time.monotonic() - began) * 1e3)

    async def restore(self, number: int, name: str | None) -> SlotMoved:
        """Read a state, for the prompts that begin as it does. Raises RequestError."""
        path, form = self._place(name)
        began = time.monotonic()
        most = self._engine.max_length
        room = self._engine.snapshot.kept.memory_limit
        try:
            kept, size = await asyncio.to_thread(
                read_slot, path, self._identity, form.row_bytes, most, room
            )
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise RequestError(f"The file cannot be restored: {why}.", param="filename") from None
        count = await self._engine.between_steps(lambda: self._engine.engine.put_in(kept))
        self._known[number] = kept.key, kept.tokens[:count]
        return SlotMoved(count, size, (time.monotonic() - began) * 1e3)

    async def erase(self, number: int) -> int:
        """Forget what the slot holds; its tokens. Raises RequestError."""
        if not self._can_erase:
            raise NotSupportedError("With --cache-dir nothing is erased.")
        key, tokens = self._known.pop(number, (b"", np.empty(0, np.int32)))
        if len(tokens):
            await self._engine.between_steps(lambda: self._engine.engine.erase(tokens, key))
        return len(tokens)

    def _sequence(self, number: int) -> tuple[bytes, np.ndarray]:
        found = self._known.get(number)
        if found is None:
            raise RequestError(f"No request has named slot {number}.", param="id_slot")
        return found

    def _place(self, name: str | None) -> tuple[Path, StateForm]:
        """A file, and the form of states. Raises RequestError for what is no name of a file in the
        folder."""
        if self._folder is None or self._form is None:
            raise NotSupportedError("States are saved where --slot-save-path names a folder.")
        size = len((name or "").encode("utf-8", "replace"))
        bad = not name or size > _LONGEST_NAME or name.startswith(".") or not name.isprintable()
        if name is None or bad or set(name) & set('/\\:*?"<>|'):
            raise RequestError("filename must be a plain name, without a folder.", param="filename")
        return self._folder / name, self._form


def _unwritten(error: OSError) -> RequestError:
    """Why a file was not written: the name that the client chose is taken, or the disk fails."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return StorageFullError(
            "The disk of --slot-save-path is full.", hint="Free some room, and save again."
        )
    told = f"The file cannot be written to --slot-save-path: {error.strerror}."
    if error.errno in (errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY):
        return RequestError(told, param="filename", hint="Choose another name.")
    return UnavailableError(told, hint="Make the folder writable again.")
