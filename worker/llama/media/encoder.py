"""The process that reads pictures and sounds, from the worker's side."""

from __future__ import annotations

import threading

import msgspec

from worker import log
from worker.child import Child
from worker.errors import ModelLoadError, RequestError, UnavailableError, WakeError
from worker.llama.media.frames import (
    EncodedMedium,
    EncoderFrame,
    EncoderReady,
    EncoderRefused,
    EncoderSetup,
    EncoderTask,
    MediumSize,
)

_log = log.get("media")

_CHILD = "worker.llama.media.child"
_early: list[Child] = []
_decoder = msgspec.msgpack.Decoder(EncoderFrame)


def start_early() -> None:
    """Start the process of the next encoder now: inside of --sandbox none can be started."""
    _early.append(Child(_CHILD))


class MediaEncoder:
    """Any thread may call it; media are read one after the other.

    ready  what the projector can do
    """

    def __init__(self, setup: EncoderSetup) -> None:
        """Start it; `wait` says whether it works."""
        self.ready = EncoderReady(kinds=(), width=0, is_causal=True)
        self._setup = setup
        self._lock = threading.Lock()
        self._child = _early.pop() if _early else Child(_CHILD)
        self._child.send(msgspec.msgpack.encode(setup))

    def wait(self) -> None:
        """Until the projector is loaded. Raises ModelLoadError."""
        frame = self._answer()
        if isinstance(frame, EncoderReady):
            self.ready = frame
            return
        self.close()
        why = frame.why if isinstance(frame, EncoderRefused) else "it gave no reason"
        raise ModelLoadError(
            f"The projector {self._setup.projector} cannot be used: {why}.",
            hint="Take the one that was published beside the model, or start with --no-mmproj.",
        )

    def encode(self, data: bytes, kind: str) -> EncodedMedium:
        """A file's bytes as the model reads them. Blocks. Raises RequestError, UnavailableError."""
        frame = self._ask(EncoderTask(data, kind, counts=False))
        assert isinstance(frame, EncodedMedium)
        return frame

    def count(self, data: bytes, kind: str) -> MediumSize:
        """How much of a context it takes, from its head; no vectors are made. Else as `encode`."""
        frame = self._ask(EncoderTask(data, kind, counts=True))
        assert isinstance(frame, MediumSize)
        return frame

    def _ask(self, task: EncoderTask) -> EncodedMedium | MediumSize:
        with self._lock:
            self._child.send(msgspec.msgpack.encode(task))
            frame = self._answer()
        if isinstance(frame, EncodedMedium | MediumSize):
            return frame
        if isinstance(frame, EncoderRefused):
            if frame.is_away:
                raise WakeError(
                    f"The image and audio encoder could not be loaded again: {frame.why}."
                )
            if frame.died:
                _log.warning("the image and audio encoder was restarted", why=frame.why)
            raise RequestError(f"It cannot be read: {frame.why}.", code="bad_medium")
        raise UnavailableError("The image and audio encoder has ended.", code="media")

    def rest(self) -> None:
        """Give back what the projector takes; the next medium loads it again."""
        with self._lock:
            self._child.send(b"")

    def _answer(self) -> EncoderFrame | None:
        """None: the process has ended, or a stranger's medium has taken it over."""
        data = self._child.receive()
        try:
            return None if data is None else _decoder.decode(data)
        except msgspec.DecodeError:
            return None

    def close(self) -> None:
        """End it; safe to call again."""
        self._child.close()
