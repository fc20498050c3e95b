"""The process that calls llama.cpp's quantiser: `python -m worker.llama.quantize.child`.

It gets one QuantizeJob and sends llama.cpp's log, a QuantizerLine each. When the process that
started it is gone, it removes the file that it was writing and leaves.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from worker.child import Parent
from worker.gguf.imatrix import Importance, read_imatrix
from worker.llama.library import ggml, native
from worker.llama.process import death
from worker.llama.quantize.process import QuantizeJob, QuantizerLine

# Bytes of rows, source and result, that are in memory at once. llama.cpp's default is 8 GiB.
_BUFFER_BYTES = 512 << 20
# Keys about the matrix that llama-quantize writes into the file.
_IMATRIX_KEYS = (
    "quantize.imatrix.file",
    "quantize.imatrix.dataset",
    "quantize.imatrix.entries_count",
    "quantize.imatrix.chunks_count",
)
_TEXT_BYTES = 127  # of a key's text, without the NUL at its end


class _Log:
    """Collects what llama.cpp logs into lines and sends them."""

    def __init__(self, parent: Parent) -> None:
        self._parent, self._text, self._level = parent, b"", 2
        self.callback = native.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        if level != 5:  # continues the line before
            self._level = level
        self._text += text
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            self._send(line)

    def _send(self, line: bytes) -> None:
        told = QuantizerLine(self._level, line.decode("utf-8", "replace"))
        self._parent.send(msgspec.msgpack.encode(told))

    def finish(self) -> None:
        """Send a line that has no end yet: it names the tensor that is being written."""
        self._send(self._text)


def _matrix(importance: Importance) -> ctypes.Array[Any]:
    """The native array. An empty entry ends it. It points into `importance`."""
    array = (native.llama_model_imatrix_data * (len(importance.entries) + 1))()
    for slot, (name, values) in zip(array, importance.entries.items(), strict=False):
        slot.name = name.encode()
        slot.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        slot.size = values.size
    return array


def _types(encodings: dict[str, int]) -> ctypes.Array[Any]:
    """The native array of tensors' types. An empty entry ends it."""
    array = (native.llama_model_tensor_override * (len(encodings) + 1))()
    for slot, (name, number) in zip(array, encodings.items(), strict=False):
        slot.pattern = f"^{name.replace('.', '[.]')}$".encode()
        slot.type = number
    return array


def _matrix_keys(importance: Importance, name: str) -> dict[str, str | int]:
    """The keys about the matrix, as llama-quantize writes them."""
    values = (name, importance.dataset, len(importance.entries), importance.chunks)
    return {key: value for key, value in zip(_IMATRIX_KEYS, values, strict=True) if value}


def _overrides(keys: Mapping[str, str | int]) -> ctypes.Array[Any]:
    """The native array of keys. An empty entry ends it."""
    told = list(keys.items())
    array = (native.llama_model_kv_override * (len(told) + 1))()
    for slot, (key, value) in zip(array, told, strict=False):
        slot.key = key.encode()
        if isinstance(value, int):
            slot.tag, slot.value.val_i64 = native.LLAMA_KV_OVERRIDE_TYPE_INT, value
        else:
            slot.tag = native.LLAMA_KV_OVERRIDE_TYPE_STR
            cut = value.encode("utf-8", "replace")[:_TEXT_BYTES]
            slot.value.val_str = cut.decode("utf-8", "ignore").encode()
    return array


def run(parent: Parent, job: QuantizeJob) -> int:
    """Call the quantiser; returns 0 when it succeeded."""
    log = _Log(parent)
    ggml()
    death.at_death(log.finish)
    native.llama_log_set(log.callback, ctypes.c_void_p(0))
    native.llama_backend_init()
    params = native.llama_model_quantize_default_params()
    params.nthread = job.threads
    params.ftype = job.file_type
    params.allow_requantize = job.allow_requantize
    params.quantize_output_tensor = not job.leave_output_tensor
    params.pure = job.pure
    params.dry_run = job.dry_run
    params.max_buf_size = _BUFFER_BYTES
    keep: list[object] = []
    keys: dict[str, str | int] = dict(job.keys)
    if job.imatrix is not None:
        imatrix = Path(os.fsdecode(job.imatrix))
        importance = read_imatrix(imatrix)
        matrix = _matrix(importance)
        keys = _matrix_keys(importance, imatrix.name) | keys
        keep += [importance, matrix]
        params.imatrix = ctypes.cast(matrix, type(params.imatrix))
    if job.encodings:
        types = _types(job.encodings)
        keep.append(types)
        params.tt_overrides = ctypes.cast(types, type(params.tt_overrides))
    if keys:
        overrides = _overrides(keys)
        keep.append(overrides)
        params.kv_overrides = ctypes.cast(overrides, type(params.kv_overrides))
    code = native.llama_model_quantize(
        job.source,
        job.target,
        ctypes.byref(params),  # pyright: ignore
    )
    del keep
    return code


def main() -> None:
    """Run the job that is sent."""
    parent = Parent()
    asked = parent.receive()
    if asked is None:
        return
    job = msgspec.msgpack.decode(asked, type=QuantizeJob)
    target = Path(os.fsdecode(job.target))
    parent.leave_with(lambda: job.dry_run or target.unlink(missing_ok=True))
    os._exit(run(parent, job))


if __name__ == "__main__":
    main()
