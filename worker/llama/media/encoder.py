"""The process that reads pictures and sounds, from the worker's side."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

import msgspec

from worker import log
from worker.errors import ModelLoadError, RequestError, UnavailableError, WakeError
from worker.llama.media.frames import (
    EncodedMedium,
    EncoderFrame,
    EncoderReady,
    EncoderRefused,
    EncoderSetup,
    EncoderTask,
    MediumSize,
    frame_decoder,
    read_frame,
    write_frame,
)

_log = log.get("media")


_early: list[subprocess.Popen[bytes]] = []


def start_early() -> None:
    """Start the process of the next encoder now: inside of --sandbox none can be started."""
    _early.append(_start())


def _start() -> subprocess.Popen[bytes]:
    """With -P a folder named `worker` in the current one is not taken for this package."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "worker.llama.media.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C in a terminal only reaches the worker
    )


class MediaEncoder:
    """Any thread may call it; media are read one after the other.

    ready  what the projector can do
    """

    def __init__(self, setup: EncoderSetup) -> None:
        """Start it; `wait` says whether it works."""
        self.ready = EncoderReady(sees=False, hears=False, width=0, is_causal=True)
        self._setup = setup
        self._lock = threading.Lock()
        self._process = _early.pop() if _early else _start()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):  # it has ended already, which `wait` tells
            write_frame(self._process.stdin.fileno(), msgspec.json.encode(setup))

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
            try:
                assert self._process.stdin is not None
                write_frame(self._process.stdin.fileno(), msgspec.msgpack.encode(task))
                frame = self._answer()
            except OSError:
                frame = None
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
        with self._lock, contextlib.suppress(OSError):
            assert self._process.stdin is not None
            write_frame(self._process.stdin.fileno(), b"")

    def _answer(self) -> EncoderFrame | None:
        assert self._process.stdout is not None
        data = read_frame(self._process.stdout.fileno())
        if data is None:
            return None
        try:
            return frame_decoder.decode(data)
        except ValueError:
            return None

    def close(self) -> None:
        """End it; safe to call again."""
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        with contextlib.suppress(OSError):  # inside of --sandbox it may not; then it sees the end
            os.killpg(self._process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
