"""A model in another encoding, made by llama.cpp's quantiser in a process of its own.

A dry run first tells which encoding each tensor gets. So the size is known, and whether a matrix is
missing, before anything is written. The result is written beside the target and gets the target's
name when it is whole: an interruption leaves no half file under that name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from worker.errors import BackendError, UsageError
from worker.files import atomic_write, check_room, check_writable
from worker.gguf.header import Header
from worker.gguf.quant import Share
from worker.llama.quantize.plan import (
    QuantizeOptions,
    QuantizePlan,
    check_source,
    job_of,
    plan_of,
    type_named,
)
from worker.llama.quantize.process import run, tensor_in
from worker.model.config import load_config


def quantize(
    source: Path,
    target: Path,
    type_name: str,
    *,
    threads: int,
    imatrix: Path | None = None,
    on_progress: Callable[[float], object] | None = None,
    options: QuantizeOptions | None = None,
    replace: bool = False,
) -> QuantizePlan:
    """Write `source` to `target` in another encoding; returns what was made.

    threads      number of compute threads
    imatrix      is used instead of the one in `options`
    on_progress  is called with the share of the weights that is done, 0 to 1
    replace      also take a target that exists

    Raises what `plan` raises; UsageError for a target that cannot be written and for a source that
    needs a matrix or is quantised already; DiskSpaceError where the result has no room.
    """
    label, options = type_named(type_name), options or QuantizeOptions()
    if imatrix is not None:
        options = msgspec.structs.replace(options, imatrix=imatrix)
    header, importance = check_source(source, options)
    check_target(header, target, replace=replace)
    planned = plan_of(header, importance, label, threads, options)
    _check_plan(planned, source, options)
    check_room(target.parent, planned.file_bytes, target.name)
    with atomic_write(target, durable=True) as partial:
        done, total = 0, sum(tensor.elements for tensor in header.tensors)
        elements = {tensor.name: tensor.elements for tensor in header.tensors}
        lines = run(source, partial, job_of(label, threads, options), options.imatrix)
        with contextlib.closing(lines):  # ends the process before its file is removed
            for tensor in filter(None, map(tensor_in, lines)):
                done += elements.get(tensor[0], 0)
                if on_progress is not None:
                    on_progress(done / total)
        made = load_config(partial, purpose="inspect")
        if made.mix != planned.mix:
            raise BackendError(
                f"llama.cpp made {_list(made.mix)} instead of {_list(planned.mix)}.",
                code="QUANTIZE_FAILED",
            )
        if target.exists() and not replace:
            raise UsageError(f"{target} was made meanwhile.", hint="Pass --force to replace it.")
    return msgspec.structs.replace(planned, file_bytes=target.stat().st_size)


def check_target(header: Header, target: Path, *, replace: bool) -> None:
    """Raises UsageError, DiskSpaceError where it cannot be written."""
    if not target.parent.is_dir():
        raise UsageError(f"There is no folder {target.parent}.", hint="Make it first.")
    check_writable(target.parent)
    if target.is_dir():
        raise UsageError(f"{target} is a folder.", hint="Name the file to write.")
    if not target.exists():
        return
    if any(target.samefile(file.path) for file in header.files):
        raise UsageError(f"{target} is the source itself.", hint="Name another file to write.")
    if not replace:
        raise UsageError(f"{target} exists already.", hint="Name another file, or pass --force.")


def _check_plan(planned: QuantizePlan, source: Path, options: QuantizeOptions) -> None:
    if planned.needs_imatrix:
        name, count = planned.needs_imatrix[0], len(planned.needs_imatrix)
        what = "has none for" if options.imatrix else "is needed by"
        raise UsageError(
            f"{planned.type_name} cannot be made: an importance matrix {what} {name}"
            f"{f' and {count - 1} more tensors' if count > 1 else ''}.",
            hint="Make one for this model with `worker imatrix` and pass --imatrix FILE, or take a "
            "larger type, Q2_K for example.",
            code="NEEDS_IMATRIX",
        )
    if planned.requantized and not options.allow_requantize:
        raise UsageError(
            f"{source.name} is already quantized, and doing it twice loses quality twice.",
            hint="Start from the F16, BF16 or F32 file, or pass --allow-requantize.",
            code="ALREADY_QUANTIZED",
        )


def _list(mix: dict[str, Share]) -> str:
    return ", ".join(f"{share.tensors} x {name}" for name, share in mix.items())
