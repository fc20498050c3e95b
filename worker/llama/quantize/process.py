"""llama.cpp's quantiser from the side of the process that starts it (`child.py`)."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator
from pathlib import Path

import msgspec

from worker.child import Child
from worker.errors import BackendError
from worker.files import scratch_folder
from worker.gguf.split_name import SplitName

_TENSOR = re.compile(r"\[ *\d+/ *\d+\] (?P<name>.+?) +- \[[ \d,]*\], type = *(?P<type>\w+), ")
_TARGET = re.compile(r"-> +[\d.]+ MiB \((?P<type>\w+)\)")
_FAILED = "failed to quantize: "
_ERROR_LEVEL = 4


class QuantizeJob(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the quantiser.

    file_type  llama.cpp's number for a type, as in `general.file_type`
    source, target, imatrix  paths as the system has them, which need not be text
    encodings  tensor -> llama.cpp's number for its type, before any other rule
    keys       that the file gets, of at most 127 bytes each
    """

    file_type: int
    threads: int
    allow_requantize: bool
    leave_output_tensor: bool
    pure: bool
    dry_run: bool
    source: bytes = b""
    target: bytes = b""
    imatrix: bytes | None = None
    encodings: dict[str, int] = {}
    keys: dict[str, str] = {}


class QuantizerLine(msgspec.Struct, frozen=True, array_like=True):
    """What llama.cpp logs."""

    level: int
    text: str


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
    with (
        _readable(source, target) as path,
        contextlib.closing(
            Child("worker.llama.quantize.child", {**os.environ, "GGML_NO_BACKTRACE": "1"})
        ) as child,
    ):
        job = msgspec.structs.replace(
            job,
            source=os.fsencode(path),
            target=os.fsencode(target),
            imatrix=os.fsencode(imatrix) if imatrix else None,
        )
        child.send(msgspec.msgpack.encode(job))
        cause, at = "it gave no reason", ""
        while (data := child.receive()) is not None:
            line = msgspec.msgpack.decode(data, type=QuantizerLine)
            if line.level == _ERROR_LEVEL:
                cause = line.text.partition(_FAILED)[2] or cause
            else:
                if tensor := tensor_in(line.text):
                    at = f"{tensor[0]} of "
                yield line.text
        ending = child.ending()
    if ending.fault:
        raise BackendError(
            f"llama.cpp died of {ending.fault} while it quantized {at}{source.name}.",
            hint=f"Look at the source with `worker check --deep {source}`; `make install` proves "
            "llama.cpp on this CPU again.",
            code="NATIVE_DEATH",
        )
    if ending.code:
        how = f"ended with {ending}" if ending.code < 0 or ending.last else f"failed: {cause}"
        raise BackendError(
            f"llama.cpp's quantizer {how.strip().rstrip('.')}.",
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
