"""What is chosen from a context's row is what is chosen from the same logits anywhere else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.sampling import choice
from worker.llama.weights import LoadOptions

ROWS = 24
WAYS: list[dict[str, Any]] = [
    {"temperature": 0},
    {},
    {"top_k": 40},
    {"top_k": 5, "top_p": 0.9, "min_p": 0.05, "temperature": 0.7},
    {"top_k": 40, "repeat_penalty": 1.3, "logit_bias": ((7, 4.0), (9, -100.0)), "min_tokens": 9},
    {"top_k": 60, "typical_p": 0.8},
    {"typical_p": 0.9},
    {"top_k": 50, "xtc_probability": 0.5, "xtc_threshold": 0.01},
    {"mirostat": 1},
    {"mirostat": 2, "temperature": 0.9},
    {"top_k": 40, "constraint": Constraint(kind="regex", text="[a-z ]+")},
]


@pytest.fixture(scope="module")
def backend(tiny: Path) -> Iterator[LlamaBackend]:
    """One that has computed some rows."""
    options = ContextOptions(num_cells=256, num_slots=1, chunk_outputs=ROWS)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.batch.add(np.arange(5, 5 + ROWS), 0, 0)
        backend.batch.outputs[:ROWS] = 1
        backend.decode()
        yield backend


@pytest.mark.parametrize("is_large", [False, True], ids=["few tokens", "many tokens"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_same_tokens(
    backend: LlamaBackend, way: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *, is_large: bool
) -> None:
    """By the same seed; the context's row is as it was afterwards."""
    if is_large:
        monkeypatch.setattr(choice, "_FEW", 0)
    sampling = SamplingParams(seed=3, **way)
    request = Request(
        id="one",
        prompt=Prompt((5, 6, 7)),
        params=GenerationParams(max_tokens=ROWS, sampling=sampling),
    )
    there, elsewhere = backend.make_sampler(request), backend.make_sampler(request)
    before = [backend.logits(row).copy() for row in range(ROWS)]
    found = [backend.sample(row, there) for row in range(ROWS)]
    assert found == [elsewhere.sample(row.copy()) for row in before]
    assert all(np.array_equal(backend.logits(row), before[row]) for row in range(ROWS))
    backend.free_sampler(there)
    backend.free_sampler(elsewhere)
