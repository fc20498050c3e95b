"""Pictures and sounds of requests: encoded once, and kept by the hash of their bytes."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import deque
from importlib import metadata
from pathlib import Path

import msgspec
import numpy as np

from worker import machine
from worker.cache.media import PREFIX, MediaStore
from worker.engine.request import Medium
from worker.errors import QueueFullError, RequestError
from worker.lifecycle.addresses import MediaAddresses
from worker.lifecycle.persistence import fingerprint
from worker.lifecycle.prepared import Prepared
from worker.limits import MEDIA_KEPT, MEDIA_LENT, MEDIUM_MEMORY, MEDIUM_TIME, PIXELS, SOUND
from worker.llama import library
from worker.llama.media.encoder import MediaEncoder
from worker.llama.media.frames import (
    EncodedMedium,
    EncodedPiece,
    EncoderReady,
    EncoderSetup,
    MediumSize,
)
from worker.memory.saved_states import disk_limit
from worker.settings import Settings

_decoder = msgspec.msgpack.Decoder(EncodedMedium)
_DISK_SHARE = 4  # of the folder that states have


class MediaReader:
    """Any thread may call it: simultaneous requests for one medium wait for one
    encoding.

    ready     what the projector can do
    max_rows  vectors that look at each other, at most
    """

    def __init__(self, settings: Settings, prepared: Prepared) -> None:
        """Start to load the projector; `wait` for it."""
        projector = prepared.projector
        assert projector is not None
        files = [each.path for each in (*prepared.config.files, *projector.files)]
        setup = EncoderSetup(
            model=prepared.config.path,
            projector=projector.path,
            threads=settings.threads or machine.usable_cpus(),
            gpu=bool(prepared.devices.chosen) and settings.mmproj_offload,
            seconds=MEDIUM_TIME.most,
            megabytes=MEDIUM_MEMORY.most,
            longest=SOUND.most,
            pixels=PIXELS.most,
            reads=tuple(files),
        )
        self._settings = settings
        self.max_rows = 0
        decoder = metadata.version("pillow")
        identity = repr((fingerprint(map(Path, files)), library.build().bindings, decoder)).encode()
        self._key = hashlib.sha256(identity).digest()
        folder = None
        if settings.cache_dir is not None:
            name = hashlib.blake2b(identity, digest_size=16).hexdigest()
            folder = Path(settings.cache_dir) / f"{PREFIX}{name}"
        room = disk_limit(settings) // _DISK_SHARE if folder is not None else 0
        self._store = MediaStore(MEDIA_KEPT.most << 20, folder, room)
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._lent, self._most_lent = 0, MEDIA_LENT.most * prepared.plan.num_cells
        self._returned: deque[int] = deque()
        self.num_encoded = 0
        self._encoder = MediaEncoder(setup)

    @property
    def ready(self) -> EncoderReady:
        """What the projector can do."""
        return self._encoder.ready

    def addresses(self) -> MediaAddresses:
        """Of one request's media."""
        return MediaAddresses(self._settings)

    def wait(self, max_rows: int) -> None:
        """Until it is loaded. Raises ModelLoadError. max_rows: that one step can have"""
        self.max_rows = max_rows
        self._encoder.wait()

    def digest(self, data: bytes) -> bytes:
        """Of a medium, as this projector reads it."""
        return hashlib.blake2b(data, digest_size=32, key=self._key).digest()

    def knows(self, digest: bytes) -> bool:
        """Whether the medium is encoded already."""
        return self._recall(digest) is not None

    def count(self, digest: bytes, data: bytes, kind: str) -> int:
        """Tokens and vectors that it takes, known before it is encoded; blocks. Raises
        RequestError."""
        if (found := self._recall(digest)) is not None:
            return sum(map(self._num_rows, _decoder.decode(found).pieces))
        size = self._encoder.count(data, kind)
        self._check(size)
        return size.rows

    def read(self, digest: bytes, data: bytes, kind: str) -> tuple[Medium | tuple[int, ...], ...]:
        """A file's bytes as the model reads them, tokens and vectors; blocks. Raises
        RequestError, and QueueFullError where requests hold too many vectors already."""
        with self._reading:
            found = self._recall(digest)
            if found is None:
                made = self._encoder.encode(data, kind)
                self.num_encoded += 1
                found = msgspec.msgpack.encode(made)
                with self._lock:
                    self._store.put(digest, found)
        pieces = tuple(map(self._read, _decoder.decode(found).pieces))
        self._lend([piece.vectors for piece in pieces if isinstance(piece, Medium)])
        return pieces

    def _lend(self, vectors: list[np.ndarray]) -> None:
        """Count these until nobody holds them. Raises QueueFullError."""
        with self._lock:
            while self._returned:
                self._lent -= self._returned.popleft()
            if self._lent + sum(map(len, vectors)) > self._most_lent:
                raise QueueFullError(
                    "Waiting requests hold too many images and audio files.", hint="Try again."
                )
            for each in vectors:
                self._lent += len(each)
                # It is called wherever the last reference goes, also where the lock is held.
                weakref.finalize(each, self._returned.append, len(each)).atexit = False

    def _num_rows(self, piece: EncodedPiece) -> int:
        return len(piece.tokens) or len(piece.vectors) // (4 * self.ready.width)

    def _read(self, piece: EncodedPiece) -> Medium | tuple[int, ...]:
        if piece.tokens:
            return piece.tokens
        vectors = np.frombuffer(piece.vectors, np.float32).reshape(-1, self.ready.width)
        planes = np.frombuffer(piece.positions, np.int32).reshape(4, -1)
        return Medium(0, vectors, piece.length, planes if planes.size else None, piece.is_causal)

    def _recall(self, digest: bytes) -> bytes | None:
        with self._lock:
            return self._store.get(digest)

    def _check(self, size: MediumSize) -> None:
        if size.together > self.max_rows:
            raise RequestError(
                f"It takes {size.together} vectors that look at each other, and a step of this "
                f"worker has room for {self.max_rows}.",
                hint=f"Start the worker with --batch-size {size.together} --ubatch-size "
                f"{size.together}.",
            )

    def rest(self) -> None:
        """Give back what the projector takes, until the next medium."""
        self._encoder.rest()

    def close(self) -> None:
        """End the process that encodes."""
        self._encoder.close()
