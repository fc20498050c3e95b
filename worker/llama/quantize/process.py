"""Starts the process that runs llama.cpp's quantiser (`child.py`), and reads what it says.

Because it is another process, a failed assertion in native code is an error here and does not end
our process, and a call that takes minutes can be given up at any moment.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import msgspec

from worker.errors import BackendError
from worker.files import scratch_folder
from worker.gguf.split_name import SplitName
from worker.llama.process import death

_TENSOR = re.compile(r"\[ *\d+/ *\d+\] (?P<name>.+?) +- \[[ \d,]*\], type = *(?P<type>\w+), ")
_TARGET = re.compile(r"-> +[\d.]+ MiB \((?P<type>\w+)\)")
_FAILED = "failed to quantize: "
_ERROR_LEVEL = 4


class QuantizeJob(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the quantiser; it is passed as JSON.

    `file_type` is llama.cpp's number for a type, as in `general.file_type`. The paths are not part
    of it, because a file's name need not be text.
    """

    file_type: int
    threads: int
    allow_requantize: bool
    leave_output_tensor: bool
    pure: bool
    dry_run: bool


@contextlib.contextmanager
def _readable(source: Path, target: Path) -> Generator[Path]:
    """The source under a name whose other files llama.cpp finds: they end in small letters."""
    name = SplitName.parse(source.name)
    if name is None or name.suffix.islower():
        yield source
        return
    with scratch_folder(target.parent) as folder:
        small = msgspec.structs.replace(name, suffix=name.suffix.lower())
        for own, theirs in zip(name.siblings(), small.siblings(), strict=True):
            (folder / theirs).symlink_to(source.with_name(own).absolute())
        yield folder / str(small)


def run(source: Path, target: Path, job: QuantizeJob, imatrix: Path | None) -> Generator[str]:
    """Run the quantiser's process; yields each line that llama.cpp logs. Raises BackendError."""
    with _readable(source, target) as path:
        yield from _run(path, source, target, job, imatrix)


def _run(
    path: Path, source: Path, target: Path, job: QuantizeJob, imatrix: Path | None
) -> Generator[str]:
    words = [str(path), str(target), *([str(imatrix)] if imatrix else [])]
    # It gets a session of its own: Ctrl-C in a terminal only reaches us, and we end it. With -P a
    # folder named `worker` in the current folder is not taken for this package.
    process = subprocess.Popen(  # noqa: S603  (our own module, no shell)
        [sys.executable, "-P", "-m", "worker.llama.quantize.child",
         msgspec.json.encode(job).decode(), *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip
    cause, at = "", ""
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\n")
            level, tab, text = line.partition("\t")
            if not tab:
                cause = line or cause  # not from llama.cpp's log: an assertion, a traceback
            elif level == str(_ERROR_LEVEL):
                cause = text.partition(_FAILED)[2] or cause
            else:
                if found := tensor_in(text):
                    at = f"{found[0]} of "
                yield text
        code = process.wait()
    finally:
        process.kill()
        process.communicate()
    if died := death.signal_in(cause):
        raise BackendError(
            f"llama.cpp died of {died} while it quantized {at}{source.name}.",
            hint=f"Look at the source with `worker check --deep {source}`; `make install` proves "
            "llama.cpp on this CPU again.",
            code="NATIVE_DEATH",
        )
    if code:
        ended = f" was ended by {signal.Signals(-code).name}" if code < 0 else " failed"
        raise BackendError(
            f"llama.cpp's quantizer{ended}: {cause.strip().rstrip('.') or 'it gave no reason'}.",
            hint="Check the source with `worker show`, or take another type.",
            code="QUANTIZE_FAILED",
        )


def tensor_in(line: str) -> tuple[str, str] | None:
    """The tensor's name and the encoding that it gets; None for a line about something else."""
    match = _TENSOR.match(line)
    if match is None:
        return None
    target = _TARGET.search(line)
    return match["name"], (target or match)["type"].upper()
