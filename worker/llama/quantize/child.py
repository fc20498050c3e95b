"""The process that calls llama.cpp's quantiser: `python -m worker.llama.quantize.child JOB
SOURCE TARGET [IMATRIX]`.

A failed assertion in native code ends this process and no other. It writes llama.cpp's log to
standard output, each line as `LEVEL<tab>TEXT`. When its standard input ends, the process that
started it is gone; then it removes the file that it was writing and leaves.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from pathlib import Path
from typing import Any

import msgspec

from worker.gguf.imatrix import Importance, read_imatrix
from worker.llama.library import ggml, native
from worker.llama.process import death
from worker.llama.quantize.process import QuantizeJob

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


class _Line:
    """Collects llama.cpp's log into lines and writes them out."""

    def __init__(self) -> None:
        self._text, self._level = b"", 2
        self.callback = native.llama_log_callback(self._receive)

    def _receive(self, level: int, text: bytes, _user: object) -> None:
        if level != 5:  # continues the line before
            self._level = level
        self._text += text
        *lines, self._text = self._text.split(b"\n")
        for line in lines:
            os.write(1, b"%d\t%s\n" % (self._level, line))

    def finish(self) -> None:
        """Write out a line that has no end yet: it names the tensor that is being written."""
        os.write(1, b"%d\t%s\n" % (self._level, self._text))


def _leave_with_parent(target: Path | None) -> None:
    while os.read(0, 4096):
        pass
    if target is not None:
        target.unlink(missing_ok=True)
    os._exit(1)


def _matrix(importance: Importance) -> ctypes.Array[Any]:
    """The native array. An empty entry ends it. It points into `importance`."""
    array = (native.llama_model_imatrix_data * (len(importance.entries) + 1))()
    for slot, (name, values) in zip(array, importance.entries.items(), strict=False):
        slot.name = name.encode()
        slot.data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        slot.size = values.size
    return array


def _overrides(importance: Importance, name: str) -> ctypes.Array[Any]:
    """The keys about the matrix, as llama-quantize writes them."""
    values = (name, importance.dataset, len(importance.entries), importance.chunks)
    told = [(key, value) for key, value in zip(_IMATRIX_KEYS, values, strict=True) if value]
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


def run(job: QuantizeJob, source: str, target: str, imatrix: str | None) -> int:
    """Call the quantiser; returns 0 when it succeeded."""
    log = _Line()
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
    if imatrix is not None:
        importance = read_imatrix(imatrix)
        matrix, overrides = _matrix(importance), _overrides(importance, Path(imatrix).name)
        keep += [importance, matrix, overrides]
        params.imatrix = ctypes.cast(matrix, type(params.imatrix))
        params.kv_overrides = ctypes.cast(overrides, type(params.kv_overrides))
    code = native.llama_model_quantize(
        os.fsencode(source),
        os.fsencode(target),
        ctypes.byref(params),  # pyright: ignore
    )
    del keep
    return code


def main() -> None:
    """Run the job that is given on the command line."""
    job = msgspec.json.decode(sys.argv[1], type=QuantizeJob)
    source, target, *imatrix = sys.argv[2:]
    written = None if job.dry_run else Path(target)
    threading.Thread(target=_leave_with_parent, args=(written,), daemon=True).start()
    os._exit(run(job, source, target, imatrix[0] if imatrix else None))


if __name__ == "__main__":
    main()
