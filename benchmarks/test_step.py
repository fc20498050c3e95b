"""Python's share of a step: everything outside decode and sampling.

    pytest benchmarks/test_step.py --benchmark-only

The backend computes nothing, so what remains is scheduling, filling the batch, committing and
text. Divide by the number of sequences for the cost of one sequence and step.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from worker.cache.state import Parts, SlotState
from worker.engine.backend import Batch, CacheShape, Kernels, OutputRow
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request


class NullBackend:
    """Accepts every batch and always samples the same token."""

    def __init__(self, slots: int, cells: int) -> None:
        self.shape = CacheShape(
            num_cells=cells,
            stream_cells=cells // slots,
            num_slots=slots,
            cuts_tails=True,
            takes_back=512,
            needs_rest=False,
        )
        self.unified = False
        self.kernels = Kernels()
        self.max_length = cells
        self.vocab_size = 32_000
        self.batch = Batch(512, slots + 64)
        self.end_tokens = frozenset({2})
        self.pieces = [b" word"] * self.vocab_size

    def decode(self) -> None: ...

    def make_sampler(self, request: Request, resumption: Any = None) -> Any: ...

    def sample(self, row: OutputRow, sampler: Any) -> int:
        return 5

    def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
        return np.zeros(self.vocab_size, np.float32)

    def ahead(self, sampler: Any) -> list[int]:
        return []

    def cut(self, sampler: Any) -> bool:
        return False

    def free_sampler(self, sampler: Any) -> None: ...

    def drop(self, slot: int, start: int = 0) -> bool:
        return True

    def holds(self, slot: int, begin: int, stop: int) -> bool:
        return True

    def share(self, source: int, target: int, stop: int) -> bool:
        return True

    def arrange(self, *, unified: bool, slots: Sequence[int]) -> set[int]:
        return set(slots)

    def save(self, slot: int) -> SlotState | None: ...

    def restore(self, slot: int, parts: Parts, rest: np.ndarray | None) -> bool:
        return True

    def rest(self) -> None: ...


@pytest.mark.parametrize("context", [128, 8_192], ids=lambda n: f"at {n} tokens")
@pytest.mark.parametrize("sequences", [1, 8, 32], ids=lambda n: f"{n} sequences")
def test_step(benchmark: Any, sequences: int, context: int) -> None:
    """One step of `sequences` streams that each hold `context` tokens already."""
    # A step takes microseconds, so that no stream ends while the prompts of others are read.
    clock = itertools.count()
    engine = Engine(NullBackend(sequences, sequences * 20_000), lambda: next(clock) * 1e-6)
    for i in range(sequences):
        prompt = (i + 3,) * context
        engine.add(
            Request(
                id=str(i),
                prompt=Prompt(prompt),
                params=GenerationParams(max_tokens=10_000, stop=("zz",)),
            )
        )
    while len(engine.step()) < sequences:  # until every prompt is read
        assert engine.snapshot.num_running + engine.snapshot.num_waiting == sequences
    benchmark.group = f"a step at {context} tokens"
    benchmark.extra_info["sequences"] = sequences
    deltas = benchmark.pedantic(engine.step, rounds=300, warmup_rounds=20)
    assert len(deltas) == sequences
    assert engine.snapshot.stats.num_rearranged == 0
    per_sequence = benchmark.stats["median"] / sequences * 1e6
    benchmark.extra_info["microseconds per sequence"] = round(per_sequence, 2)
