"""The process that reads pictures and sounds: `python -m worker.llama.media.child`.

Bytes from strangers are decoded here, and vectors computed of them, within bounds of memory and
time and without a network. What starts is a small keeper without native threads; it forks the
process that works, and another one where that dies. The worker sends an EncoderSetup and then each
medium, and gets one answer each, see `frames`. After an empty frame, which has no answer, the
projector takes no memory until the next medium.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, Never

import msgspec
import numpy as np

from worker.child import Parent, ProcessEnd, bound_memory
from worker.errors import quantity
from worker.isolation.reach import narrow_reach
from worker.isolation.sandbox import bound
from worker.llama.library import bare_package, native, start
from worker.llama.media.frames import (
    EncodedMedium,
    EncodedPiece,
    EncoderFrame,
    EncoderReady,
    EncoderRefused,
    EncoderSetup,
    EncoderTask,
    MediumSize,
)
from worker.llama.media.pictures import UnreadablePictureError, open_picture, pixels_of

with bare_package():
    import llama_cpp.mtmd_cpp as bindings

mtmd: Any = bindings  # whose types are stricter than its functions
_NICE = 5  # of two processes that want a CPU, the streams' gets three quarters
# Exit codes: the projector cannot be used, and there is no use in trying again; nobody needs it for
# now, and it is loaded again for the next medium. Dying native code has those of our errors.
_FAILED, _RESTS = 100, 101
# Flags that the keeper sees: the projector was loaded once, the process has it, and reads a medium.
_LOADED, _THERE, _BUSY = 0, 1, 2
_ERROR_LEVEL = 4
_STREAMED = 0x7FFF0000
_SHORTEST = 10  # a second divided by it
_TEXT, _IMAGE = 0, 1  # enum mtmd_input_chunk_type


class _RefusedError(Exception):
    """A medium that cannot be read; the text says why."""


class _Log:
    """The last errors that native code told."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._callback = native.llama_log_callback(self._receive)
        native.llama_log_set(self._callback, ctypes.c_void_p(0))
        mtmd.mtmd_helper_log_set(self._callback, ctypes.c_void_p(0))

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == _ERROR_LEVEL and line:
            self._lines = [*self._lines, line][-3:]

    def take(self) -> str:
        """What was told since the last call."""
        lines, self._lines = self._lines, []
        return "; ".join(line.partition(": ")[2] or line for line in lines).rstrip(".")


def _missing_samples(data: bytes) -> int:
    """Bytes that a WAV's head tells beyond those that are there; a writer that streams tells none,
    or as many as can be told."""
    at = 12
    while data[:4] == b"RIFF" and at + 8 <= len(data):
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        if data[at : at + 4] == b"data":
            return 0 if length >= _STREAMED else at + 8 + length - len(data)
        at += 8 + length + length % 2
    return 0


class Projector:
    """Makes vectors of media."""

    def __init__(self, setup: EncoderSetup) -> None:
        """Raises _RefusedError where the file is no projector of the model."""
        start()
        self._log = _Log()
        params = native.llama_model_default_params()
        params.no_alloc, params.load_mode, params.n_gpu_layers = True, 0, 0
        self._model = native.llama_model_load_from_file(os.fsencode(setup.model), params)
        if not self._model:
            raise _RefusedError(f"the model's vocabulary cannot be read: {self._log.take()}")
        options = mtmd.mtmd_context_params_default()
        options.use_gpu, options.n_threads = setup.gpu, setup.threads
        options.print_timings, options.warmup = False, True
        path = os.fsencode(setup.projector)
        self._context: Any = mtmd.mtmd_init_from_file(path, self._model, options)
        if not self._context:
            raise _RefusedError(self._log.take() or "llama.cpp gave no reason")
        self._width = native.llama_model_n_embd_inp(self._model)
        self._has_planes = mtmd.mtmd_decode_use_mrope(self._context)
        self._marker = mtmd.mtmd_get_marker(self._context) or b""
        self._setup = setup
        # Kind of a medium -> whether the projector takes it, and what makes a bitmap of its file.
        self._ways: dict[str, tuple[Callable[[Any], bool], Callable[[EncoderTask], Any]]] = {
            "image": (mtmd.mtmd_support_vision, self._picture),
            "audio": (mtmd.mtmd_support_audio, self._sound),
        }

    @property
    def ready(self) -> EncoderReady:
        """What it can do."""
        return EncoderReady(
            kinds=tuple(kind for kind, (takes, _) in self._ways.items() if takes(self._context)),
            width=self._width,
            is_causal=not mtmd.mtmd_decode_use_non_causal(self._context, None),
        )

    def answer(self, task: EncoderTask) -> EncodedMedium | MediumSize:
        """Raises _RefusedError."""
        chunks = mtmd.mtmd_input_chunks_init()
        bitmap: Any = None
        try:
            bitmap = self._ways[task.kind][1](task)
            text = mtmd.mtmd_input_text(self._marker, len(self._marker), False, True)
            bitmaps = (ctypes.c_void_p * 1)(bitmap)
            if mtmd.mtmd_tokenize(self._context, chunks, ctypes.byref(text), bitmaps, 1):
                raise _RefusedError(self._log.take() or "the projector does not take it")
            count = mtmd.mtmd_input_chunks_size(chunks)
            pieces = [mtmd.mtmd_input_chunks_get(chunks, place) for place in range(count)]
            return (
                self._size(pieces)
                if task.counts
                else EncodedMedium(tuple(map(self._piece, pieces)))
            )
        finally:
            if bitmap:
                mtmd.mtmd_bitmap_free(bitmap)
            mtmd.mtmd_input_chunks_free(chunks)

    def _picture(self, task: EncoderTask) -> Any:
        """Without pixels where only its size is wanted."""
        try:
            picture = open_picture(task.data, self._setup.pixels)
            if task.counts:
                return mtmd.mtmd_bitmap_init(picture.width, picture.height, None)
            pixels = np.ascontiguousarray(pixels_of(picture))
        except UnreadablePictureError as error:
            raise _RefusedError(str(error)) from None
        height, width, _ = pixels.shape
        values = pixels.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
        return mtmd.mtmd_bitmap_init(width, height, values)

    def _sound(self, task: EncoderTask) -> Any:
        """Of at least 100 ms: there is silence behind a shorter one, which native code dies of."""
        missing = _missing_samples(task.data)
        if missing > 0:
            raise _RefusedError(
                f"it is cut off: {quantity(missing, 'byte')} of its sound are missing"
            )
        source = (ctypes.c_uint8 * len(task.data)).from_buffer_copy(task.data)
        options = mtmd.mtmd_helper_init_opt_default()
        bitmap = mtmd.mtmd_helper_bitmap_init_from_buf_wrapper(
            self._context, source, len(task.data), False, options
        ).bitmap
        if not bitmap:
            raise _RefusedError(f"it cannot be decoded: {self._log.take() or 'it is damaged'}")
        rate = mtmd.mtmd_get_audio_sample_rate(self._context)
        count = mtmd.mtmd_bitmap_get_nx(bitmap)
        if (seconds := count / rate) > self._setup.longest:
            mtmd.mtmd_bitmap_free(bitmap)
            raise _RefusedError(
                f"it is {seconds:.0f} seconds long, {self._setup.longest:g} is most"
            )
        if not 0 < count < rate // _SHORTEST:
            return bitmap
        samples = np.zeros(rate // _SHORTEST, np.float32)
        samples[:count] = np.frombuffer(
            ctypes.string_at(mtmd.mtmd_bitmap_get_data(bitmap), 4 * count), np.float32
        )
        mtmd.mtmd_bitmap_free(bitmap)
        values = samples.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        return mtmd.mtmd_bitmap_init_from_audio(samples.size, values)

    def _size(self, pieces: list[Any]) -> MediumSize:
        rows = [mtmd.mtmd_input_chunk_get_n_tokens(piece) for piece in pieces]
        together = [
            count
            for piece, count in zip(pieces, rows, strict=True)
            if mtmd.mtmd_input_chunk_get_type(piece) != _TEXT
            and mtmd.mtmd_decode_use_non_causal(self._context, piece)
        ]
        return MediumSize(sum(rows), max(together, default=0))

    def _piece(self, chunk: Any) -> EncodedPiece:
        kind = mtmd.mtmd_input_chunk_get_type(chunk)
        if kind == _TEXT:
            size = ctypes.c_size_t()
            tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(size))
            return EncodedPiece(tokens=tuple(tokens[: size.value]) if tokens else ())
        if mtmd.mtmd_encode_chunk(self._context, chunk):
            raise _RefusedError(self._log.take() or "the projector failed")
        rows = mtmd.mtmd_input_chunk_get_n_tokens(chunk)
        values = mtmd.mtmd_get_output_embd(self._context)
        vectors = ctypes.string_at(values, rows * self._width * 4)
        if not np.isfinite(np.frombuffer(vectors, np.float32)).all():
            raise _RefusedError("the projector computed values that are no numbers")
        return EncodedPiece(
            vectors=vectors,
            positions=self._planes(chunk, rows, kind) if self._has_planes else b"",
            length=mtmd.mtmd_input_chunk_get_n_pos(chunk),
            is_causal=not mtmd.mtmd_decode_use_non_causal(self._context, chunk),
        )

    def _planes(self, chunk: Any, rows: int, kind: int) -> bytes:
        """Positions in the order that llama.cpp's M-RoPE has: time, height, width, nothing."""
        if kind != _IMAGE:
            return np.tile(np.arange(rows, dtype=np.int32), (4, 1)).tobytes()
        tokens = mtmd.mtmd_input_chunk_get_tokens_image(chunk)
        planes = np.empty((4, rows), np.int32)
        for row in range(rows):
            at = mtmd.mtmd_image_tokens_get_decoder_pos(tokens, 0, row)
            further = mtmd.mtmd_image_tokens_get_decoder_pos(tokens, 1, row)
            if (further.t, further.x, further.y) != (at.t + 1, at.x + 1, at.y + 1):
                raise _RefusedError("this family counts positions in a way that is not built yet")
            planes[:, row] = at.t, at.y, at.x, at.z
        return planes.tobytes()


def _say(parent: Parent, frame: EncoderFrame) -> None:
    parent.send(msgspec.msgpack.encode(frame))


def work(parent: Parent, setup: EncoderSetup, flags: mmap.mmap) -> Never:
    """Load the projector, then answer until nobody asks any more."""
    os.nice(_NICE)
    if not setup.gpu:  # whose driver opens what it likes
        bound(narrow_reach(setup.reads))  # of /proc only what is this process's own
    try:
        projector = Projector(setup)
    except _RefusedError as error:
        if flags[_LOADED]:
            turn_away(parent, str(error))
        else:
            _say(parent, EncoderRefused(str(error)))
        os._exit(_FAILED)
    if not flags[_LOADED]:
        _say(parent, projector.ready)
    flags[_LOADED] = flags[_THERE] = 1
    bound_memory(setup.megabytes << 20)
    while (data := parent.receive()) is not None:
        if not data:
            os._exit(_RESTS)
        flags[_BUSY] = 1
        # What does not end is ended by the system: native code asks nobody meanwhile.
        signal.setitimer(signal.ITIMER_REAL, setup.seconds)
        try:
            frame = projector.answer(msgspec.msgpack.decode(data, type=EncoderTask))
        except _RefusedError as error:
            frame = EncoderRefused(str(error))
        except MemoryError:
            frame = EncoderRefused("it takes more memory than one medium may")
        signal.setitimer(signal.ITIMER_REAL, 0)
        flags[_BUSY] = 0
        _say(parent, frame)
    os._exit(0)


def turn_away(parent: Parent, why: str) -> None:
    """Answer the medium that waits for a projector which does not come back, if there is one."""
    if parent.has_sent(within_s=0) and parent.receive():
        _say(parent, EncoderRefused(why, is_away=True))


def main() -> None:
    """Keep a process that works, until standard input ends."""
    parent = Parent()
    asked = parent.receive()
    if asked is None:
        return
    setup = msgspec.msgpack.decode(asked, type=EncoderSetup)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    flags = mmap.mmap(-1, 3)
    while True:
        flags[_THERE] = flags[_BUSY] = 0
        pid = os.fork()
        if not pid:
            work(parent, setup, flags)
        status = os.waitpid(pid, 0)[1]
        code = os.waitstatus_to_exitcode(status)
        if code == 0 or (code == _FAILED and not flags[_LOADED]):
            sys.exit(code)
        if code in (_RESTS, _FAILED):
            if parent.has_sent():
                continue
            return  # the end
        if code == -signal.SIGALRM:
            why = f"it took more than {setup.seconds} seconds"
        else:
            why = f"the process that read it died ({ProcessEnd(code)})"
        if flags[_BUSY] or not flags[_LOADED]:
            _say(parent, EncoderRefused(why, died=True))
        elif not flags[_THERE]:
            turn_away(parent, f"the process that loads it died ({ProcessEnd(code)})")
            if not parent.has_sent():
                return
        if not flags[_LOADED]:
            sys.exit(_FAILED)


if __name__ == "__main__":
    main()
