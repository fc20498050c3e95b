"""What a process holds, as the kernel counts it, and what a model will need of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.machine import Memory
from worker.memory.buffers import kv_bytes_per_token
from worker.memory.plan import estimate
from worker.model.config import ModelConfig
from worker.settings import Settings


class ProcessMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes. `peak_rss` is the kernel's high-water mark of resident memory (VmHWM), `rss` and
    `pss` are of the moment; pages shared with others count in `pss` by their share."""

    peak_rss: int
    rss: int
    pss: int


def process_memory(pid: int | None = None) -> ProcessMemory | None:
    """The kernel's figures of a process, of this one without `pid`; None without /proc."""
    folder = Path("/proc") / str(pid or os.getpid())
    try:
        status = _kilobytes(folder / "status")
        smaps = _kilobytes(folder / "smaps_rollup")
    except OSError:
        return None
    return ProcessMemory(peak_rss=status["VmHWM"], rss=status["VmRSS"], pss=smaps["Pss"])


def _kilobytes(file: Path) -> dict[str, int]:
    """The lines `Name: N kB` of a file, in bytes."""
    rows = (line.split() for line in file.read_text().splitlines())
    return {
        row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"
    }


class Buffers(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that llama.cpp allocated, by buffer; `device_bytes` of those outside of the host."""

    weights: dict[str, int]
    kv: dict[str, int]
    compute: dict[str, int]
    device_bytes: int


def buffers_of(backend: LlamaBackend) -> Buffers:
    """What llama.cpp reported when it allocated."""
    weights = dict(backend.weights.residency.buffers)
    kv = dict(backend.context.residency.kv_buffers)
    compute = dict(backend.context.residency.compute_buffers)
    return Buffers(
        weights=weights,
        kv=kv,
        compute=compute,
        device_bytes=sum(
            nbytes
            for part in (weights, kv, compute)
            for name, nbytes in part.items()
            if library.device_of(name) != "CPU"
        ),
    )


class Needs(msgspec.Struct, frozen=True, kw_only=True):
    """What the model takes of this machine, by the worker's own plan.

    planned_bytes  all of a worker with `context` cells for `streams` sequences
    max_context    longest context whose worker fits now, at most what the model was trained on
    """

    context: int
    streams: int
    planned_bytes: int
    kv_bytes_per_token: int
    max_context: int
    fits: bool


def needs_of(config: ModelConfig, settings: Settings, memory: Memory) -> Needs:
    """The plan for the measurements, and for one sequence as long as possible."""
    plan = estimate(config, settings, memory)
    alone = msgspec.structs.replace(settings, parallel=1, ctx_size=None)
    longest = estimate(config, alone, memory).max_cells
    return Needs(
        context=plan.num_cells,
        streams=settings.slots,
        planned_bytes=plan.total_bytes,
        kv_bytes_per_token=kv_bytes_per_token(config, settings),
        max_context=min(longest, config.context) if config.context else longest,
        fits=plan.fits,
    )


def read_per_token(config: ModelConfig, tensors: list[tuple[str, int]]) -> int:
    """Bytes of weights that decoding one token reads, from (name, bytes) of each tensor.

    All but rows that are looked up: an embedding that is not the output matrix too; and of the
    experts only those that a token passes.
    """
    names = {name for name, _ in tensors}
    tied = "output.weight" not in names
    total = 0.0
    for name, nbytes in tensors:
        if name.endswith("token_embd.weight") and (name.startswith("per_layer") or not tied):
            continue
        if "_exps." in name and config.experts:
            total += nbytes * config.experts.max_used / config.experts.count
        else:
            total += nbytes
    return int(total)
