"""Where a model's memory is, as llama.cpp reported it, to compare it with the plan."""

from __future__ import annotations

from worker.llama import library
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Companion
from worker.memory.offload import Part, Placement


def allocated(backend: LlamaBackend, draft: Companion | None = None) -> tuple[Placement, ...]:
    """Bytes of weights, cells and compute buffers on each device; in one, those of what guesses.

    States of recurrent layers count as cells. The bytes are rounded to 10 KiB, as llama.cpp prints
    them.
    """
    parts: dict[Part, tuple[tuple[str, int], ...]] = {
        "weights": backend.weights.residency.buffers,
        "kv": backend.context.residency.kv_buffers,
        "compute": backend.context.residency.compute_buffers,
    }
    if draft is not None:
        parts["draft"] = draft.buffers
    sums: dict[tuple[str, Part], int] = {}
    for part, buffers in parts.items():
        for buffer, nbytes in buffers:
            key = (library.device_of(buffer), part)
            sums[key] = sums.get(key, 0) + nbytes
    return tuple(Placement(device, part, nbytes) for (device, part), nbytes in sums.items())
