"""What quantising would make of a model, from the log of llama.cpp's dry run."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from worker.errors import BackendError, UsageError, did_you_mean
from worker.gguf.header import Header
from worker.gguf.imatrix import Importance, read_imatrix
from worker.gguf.quant import ENCODINGS, FILE_TYPES, Share, bits_per_weight, mix_of
from worker.gguf.reader import align
from worker.gguf.splits import open_header
from worker.llama.quantize.process import QuantizeJob, run, tensor_in
from worker.model.config import load_config

# llama.cpp cannot quantise to NVFP4 (`llama_ftype_get_default_type`); a converter makes such files.
TYPES: dict[str, int] = {
    label: number for number, (label, _) in FILE_TYPES.items() if label != "NVFP4"
}
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}

# `tensor_requires_imatrix` in llama-quant.cpp.
_NEED_IMATRIX = frozenset({"IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S"})
_EMBEDDINGS = ("token_embd.weight", "per_layer_token_embd.weight")
_ALIGNMENT = 32  # GGUF_DEFAULT_ALIGNMENT: the quantiser pads tensors to it
_NUMBERS = {encoding.name: number for number, encoding in ENCODINGS.items()}


class QuantizeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to quantise.

    imatrix              importance matrix
    allow_requantize     also take a source that is quantised already; quality is lost twice
    leave_output_tensor  keep `output.weight` as it is
    pure                 one encoding for all matrices instead of llama.cpp's mix
    encodings            tensor -> its encoding, whatever the mix says
    keys                 that the file gets, of at most 127 bytes each
    """

    imatrix: Path | None = None
    allow_requantize: bool = False
    leave_output_tensor: bool = False
    pure: bool = False
    encodings: dict[str, str] = {}
    keys: dict[str, str] = {}


class QuantizePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What quantising makes of a model.

    file_bytes     the file's size; exact, except that its header counts as large as the source's
    weights_bytes  bytes of all tensors, exact
    mix            encoding -> its part of the model, largest first
    encodings      tensor -> encoding
    needs_imatrix  tensors that need an importance matrix and are in none
    requantized    tensors that are quantised already and would be quantised again
    """

    type_name: str
    source_bytes: int
    file_bytes: int
    weights_bytes: int
    bits_per_weight: float
    mix: dict[str, Share]
    encodings: dict[str, str]
    needs_imatrix: tuple[str, ...]
    requantized: tuple[str, ...]


def type_named(name: str) -> str:
    """llama.cpp's spelling of a type. Raises UsageError where it has no such type."""
    label = ALIASES.get(name.upper(), name.upper())
    if label not in TYPES:
        raise UsageError(
            f"There is no quant level {name!r}.",
            hint=f"{did_you_mean(label, TYPES)}The levels are {', '.join(TYPES)}.",
        )
    return label


def plan(
    source: Path, type_name: str, *, threads: int = 1, options: QuantizeOptions | None = None
) -> QuantizePlan:
    """What `quantize` would make, without writing anything.

    Raises UsageError for an unknown type, ModelFileError where the source is no model or the matrix
    no matrix, BackendError where llama.cpp cannot make this type of this model.
    """
    label, options = type_named(type_name), options or QuantizeOptions()
    header, importance = check_source(source, options)
    return plan_of(header, importance, label, threads, options)


def check_source(source: Path, options: QuantizeOptions) -> tuple[Header, Importance | None]:
    """The source's header and the matrix, both checked. Raises UsageError."""
    config = load_config(source, purpose="inspect")
    if not config.mix:
        raise UsageError(
            f"{source.name} is a vocabulary without weights.", hint="Pass a whole model."
        )
    importance = read_imatrix(options.imatrix) if options.imatrix else None
    return open_header(source), importance


def plan_of(
    header: Header,
    importance: Importance | None,
    label: str,
    threads: int,
    options: QuantizeOptions,
) -> QuantizePlan:
    """The plan for a checked source. `label` is one of TYPES. Raises BackendError."""
    # llama.cpp would refuse a source that is quantised. Here it goes on, so that there is a plan;
    # `quantize` refuses the source later.
    job = msgspec.structs.replace(
        job_of(label, threads, options), dry_run=True, allow_requantize=True
    )
    lines = run(Path(header.path), Path(os.devnull), job, options.imatrix)
    made = dict(filter(None, map(tensor_in, lines)))
    rows: list[tuple[int, int, int]] = []
    needs: list[str] = []
    again: list[str] = []
    for tensor in header.tensors:
        kind = made.get(tensor.name)
        if kind not in _NUMBERS:
            raise BackendError(
                f"llama.cpp did not say what {tensor.name} becomes.", code="QUANTIZE_FAILED"
            )
        number = _NUMBERS[kind]
        encoding = ENCODINGS[number]
        rows.append((number, tensor.elements, tensor.elements // encoding.block * encoding.nbytes))
        if number == tensor.type:
            continue
        if ENCODINGS[tensor.type].quantized:
            again.append(tensor.name)
        columns = tensor.shape[0] * (tensor.shape[2] if len(tensor.shape) > 2 else 1)
        _check_columns(importance, tensor.name, columns)
        if _needs_importance(tensor.name, kind, label) and (
            importance is None or tensor.name not in importance.entries
        ):
            needs.append(tensor.name)
    weights = sum(nbytes for _, _, nbytes in rows)
    return QuantizePlan(
        type_name=label,
        source_bytes=sum(file.size for file in header.files),
        file_bytes=sum(file.data_offset for file in header.files)
        + sum(align(nbytes, _ALIGNMENT) for _, _, nbytes in rows),
        weights_bytes=weights,
        bits_per_weight=bits_per_weight(sum(elements for _, elements, _ in rows), weights),
        mix=mix_of(rows),
        encodings={tensor.name: made[tensor.name] for tensor in header.tensors},
        needs_imatrix=tuple(needs),
        requantized=tuple(again),
    )


def _needs_importance(name: str, kind: str, label: str) -> bool:
    if name in (*_EMBEDDINGS, "output.weight"):
        return False
    return kind in _NEED_IMATRIX or (kind == "Q2_K" and label == "Q2_K_S")


def _check_columns(importance: Importance | None, name: str, columns: int) -> None:
    values = importance.entries.get(name) if importance else None
    if values is not None and values.size != columns and name not in _EMBEDDINGS:
        raise UsageError(
            f"The importance matrix is of another model: it has {values.size} values for {name}, "
            f"not {columns}.",
            hint="Make one for this model with `worker imatrix`.",
        )


def job_of(label: str, threads: int, options: QuantizeOptions) -> QuantizeJob:
    """The job for the quantiser's process. It is no dry run."""
    return QuantizeJob(
        file_type=TYPES[label],
        threads=threads,
        allow_requantize=options.allow_requantize,
        leave_output_tensor=options.leave_output_tensor,
        pure=options.pure,
        dry_run=False,
        encodings={name: _NUMBERS[kind] for name, kind in options.encodings.items()},
        keys=options.keys,
    )
