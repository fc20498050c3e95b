"""Slots of a backend, used without an engine: read tokens, write on, take states apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.support.models import ggufs
from tests.support.models.architectures import WRITERS
from worker.cache.state import BLOCK, Parts, SlotState
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

NO_FLASH: dict[str, Any] = {"flash_attn": "off"}
QUANTISED: dict[str, Any] = {"cache_type_k": "q8_0", "cache_type_v": "q8_0"}
# Each architecture with and without the fused kernel, and what its heads are too short for.
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in WRITERS},
    **{f"{name}, no flash": (name, NO_FLASH) for name in WRITERS},
    "llama, q8_0": ("llama", QUANTISED),
}


Case = tuple[Path, dict[str, Any]]


def write_case(folder: Path, case: str) -> Case:
    """The file of a case, and the options of its context."""
    name, options = CASES[case]
    path = folder / f"{name}.gguf"
    if name in WRITERS:
        return WRITERS[name](path), options
    ggufs.write_llama(path, embedding=128, heads=4, kv_heads=2, layers=2)
    return path, options


def open_slots(path: Path, **options: Any) -> LlamaBackend:
    """A backend of four slots with 512 cells each in streams."""
    given: dict[str, Any] = {"num_cells": 2048, "num_slots": 4, "ubatch_size": 128, **options}
    return LlamaBackend.open(path, LoadOptions(n_gpu_layers=0, devices=()), ContextOptions(**given))


def random_tokens(seed: int, count: int) -> np.ndarray:
    """Ordinary tokens, int32 [count]."""
    return np.random.default_rng(seed).integers(3, 250, count, np.int32)


def read(backend: LlamaBackend, slot: int, tokens: np.ndarray, start: int = 0) -> np.ndarray:
    """Compute tokens in chunks of 64; the logits of the last one."""
    for at in range(0, len(tokens), 64):
        backend.batch.clear()
        backend.batch.add(tokens[at : at + 64], start + at, slot)
        backend.batch.outputs[backend.batch.size - 1] = 1
        backend.decode()
    return backend.logits(backend.batch.size - 1).copy()


def go_on(backend: LlamaBackend, slot: int, start: int, count: int = 6) -> np.ndarray:
    """Read 70 tokens at `start`, then write greedily: logits [1 + count, vocab_size]."""
    rows = [read(backend, slot, random_tokens(99, 70), start)]
    for place in range(start + 70, start + 70 + count):
        rows.append(read(backend, slot, np.array([rows[-1].argmax()], np.int32), place))
    return np.array(rows)


def kept(state: SlotState | None) -> tuple[Parts, np.ndarray | None]:
    """The state in blocks, as it is kept."""
    assert state is not None
    stops = [*range(BLOCK, state.num_tokens, BLOCK), state.num_tokens]
    parts = [(state.rows(begin, stop), stop - begin) for begin, stop in
             zip([0, *stops[:-1]], stops, strict=True)]  # fmt: skip
    return parts, state.rest
