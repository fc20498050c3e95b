"""ModelConfig + Settings -> MemoryPlan: what a worker will hold, and the context that fits.

The parts are what llama.cpp allocates (`buffers.py`, `layers.py`) and what the process needs
besides; `benchmarks/memory_plan.py` compares them with what llama.cpp reports and with the
resident memory.
"""

from __future__ import annotations

import bisect
from typing import Literal

import msgspec

from worker.errors import DoesNotFitError
from worker.machine import Memory
from worker.model.buffers import compute_bytes, kv_bytes_per_token, output_bytes, weights_bytes
from worker.model.config import ModelConfig
from worker.model.layers import recurrent_layers, recurrent_state
from worker.settings import Settings

# llama.cpp rounds a context up to this many cells.
CELL_STEP = 256
MIN_CELLS = 512
# One default for all machines: what most models were trained on, and a prompt that already takes
# a CPU minutes. More must be asked for, because its memory is taken from the neighbours.
DEFAULT_CELLS = 32_768
# The rest is for neighbours and for what the system caches.
DEFAULT_SHARE = 0.8
MAX_CELLS = 2**31 - CELL_STEP
# Interpreter, libraries, graphs and threads; then llama.cpp's vocabulary and our piece table for
# each token. 59 MiB and 240 B were measured (x86-64 Linux, Python 3.11, SentencePiece), and
# 10 MiB for the service's imports; rounded up, because BPE vocabularies keep merges as well.
_PROCESS_BYTES = 80 << 20
_TOKEN_BYTES = 320

Part = Literal["weights", "kv", "recurrent", "compute", "output", "process"]


class Placement(msgspec.Struct, frozen=True):
    """`nbytes` of `part` on `device`."""

    device: str
    part: Part
    nbytes: int


class MemoryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that a worker will hold when it is busy, and what the machine has for it.

    num_cells           cells of the KV cache, shared by all sequences
    weights_bytes       tensors as llama.cpp stores them; with mmap the mapped file too
    kv_bytes            attention cells
    recurrent_bytes     state of recurrent layers, one for each slot
    compute_bytes       tensors inside a step
    output_bytes        logits that wait to be sampled
    process_bytes       interpreter, libraries, vocabulary
    max_cells           longest context whose total is within `available_bytes`; 0: none is
    kv_bytes_per_token  what one more cell of context costs in the KV cache
    devices             the same bytes by device
    """

    num_cells: int
    num_slots: int
    weights_bytes: int
    kv_bytes: int
    recurrent_bytes: int
    compute_bytes: int
    output_bytes: int
    process_bytes: int
    total_bytes: int
    available_bytes: int
    max_cells: int
    kv_bytes_per_token: int
    fits: bool
    devices: tuple[Placement, ...]


def plan_memory(config: ModelConfig, settings: Settings, memory: Memory) -> MemoryPlan:
    """The plan for this model. Raises DoesNotFitError when it needs more than there is."""
    plan = estimate(config, settings, memory)
    check_fit(plan, config)
    return plan


def estimate(config: ModelConfig, settings: Settings, memory: Memory) -> MemoryPlan:
    """The plan, whether it fits or not.

    Without `settings.ctx_size` the context is `config.context` for each sequence, at most
    DEFAULT_CELLS, at most what takes DEFAULT_SHARE of the memory left by the weights, and at
    least MIN_CELLS.
    """
    bare = _sum(config, settings, memory, 0)
    max_cells = _longest(config, settings, memory, memory.available)
    if settings.ctx_size is not None:
        num_cells = settings.ctx_size
    else:
        left = memory.available - bare.total_bytes
        budget = bare.total_bytes + int(left * DEFAULT_SHARE)
        wanted = config.context * settings.parallel or DEFAULT_CELLS
        num_cells = min(wanted, DEFAULT_CELLS, _longest(config, settings, memory, budget))
        num_cells = max(num_cells, MIN_CELLS)
    plan = _sum(config, settings, memory, -(-num_cells // CELL_STEP) * CELL_STEP)
    return msgspec.structs.replace(plan, max_cells=max_cells)


def check_fit(plan: MemoryPlan, config: ModelConfig) -> None:
    """Raise DoesNotFitError unless the plan fits."""
    if plan.fits:
        return
    name = config.name or config.architecture
    need, have = human_bytes(plan.total_bytes), human_bytes(plan.available_bytes)
    if plan.max_cells >= MIN_CELLS:
        hint = f"Start with --ctx-size {plan.max_cells} or less."
    else:
        hint = "No context fits: take a smaller quantisation, or free memory."
    raise DoesNotFitError(
        f"{name} with a context of {plan.num_cells} cells needs {need}, {have} are available.",
        hint=hint,
    )


def human_bytes(count: int) -> str:
    """1610612736 -> '1.5 GiB'."""
    if count < 1024:
        return f"{count} B"
    power = min((count.bit_length() - 1) // 10, 4)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def _sum(config: ModelConfig, settings: Settings, memory: Memory, num_cells: int) -> MemoryPlan:
    per_token = kv_bytes_per_token(config, settings)
    slots = settings.parallel
    parts: dict[Part, int] = {
        "weights": weights_bytes(config, mmap=settings.mmap),
        "kv": num_cells * per_token,
        "recurrent": slots * len(recurrent_layers(config)) * recurrent_state(config) * 4,
        "compute": compute_bytes(config, settings, num_cells),
        "output": output_bytes(config, settings, num_cells),
        "process": _PROCESS_BYTES + config.vocab_size * _TOKEN_BYTES,
    }
    total = sum(parts.values())
    return MemoryPlan(
        num_cells=num_cells,
        num_slots=slots,
        weights_bytes=parts["weights"],
        kv_bytes=parts["kv"],
        recurrent_bytes=parts["recurrent"],
        compute_bytes=parts["compute"],
        output_bytes=parts["output"],
        process_bytes=parts["process"],
        total_bytes=total,
        available_bytes=memory.available,
        max_cells=0,
        kv_bytes_per_token=per_token,
        fits=total <= memory.available,
        devices=tuple(Placement("CPU", part, size) for part, size in parts.items() if size),
    )


def _longest(config: ModelConfig, settings: Settings, memory: Memory, budget: int) -> int:
    """The most cells, a multiple of CELL_STEP, whose total is within `budget` bytes; 0: none."""
    steps = range(1, MAX_CELLS // CELL_STEP + 1)
    fitting = bisect.bisect_right(
        steps, budget, key=lambda n: _sum(config, settings, memory, n * CELL_STEP).total_bytes
    )
    return fitting * CELL_STEP
