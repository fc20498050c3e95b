"""What choosing one token costs, by what is asked for and by the size of the vocabulary.

    pytest benchmarks/test_sampling.py --benchmark-only

CPU time of one thread, so that other processes do not count. The logits are random with a
standard deviation of 2, the prompt has 100 tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from worker.engine.output import token_logprob
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.guides.guides import Guides
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace

KINDS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "greedy with a bias": {"temperature": 0, "logit_bias": ((5, 2.0),)},
    "top-k 40, top-p, min-p": {"top_k": 40, "top_p": 0.95, "min_p": 0.05, "temperature": 0.8},
    "whole distribution": {},
    "temperature 0.8": {"temperature": 0.8},
    "with penalties": {"repeat_penalty": 1.1, "frequency_penalty": 0.2},
    "top-p 0.95": {"top_p": 0.95},
    "top-p 0.5": {"top_p": 0.5},
    "min-p 0.05": {"min_p": 0.05},
}
SIZES = (32_000, 151_936, 262_144)


class Words:
    """A vocabulary that nobody has to load."""

    handle = None
    end_tokens = frozenset({2})
    suppressed = ()
    max_history = 4096

    def __init__(self, size: int) -> None:
        self.size = size


def row_of(size: int) -> np.ndarray:
    """Random logits."""
    return np.random.default_rng(0).normal(0, 2, size).astype(np.float32)


def measure(benchmark: Any, size: int, kind: str, choose: Callable[[], object]) -> None:
    """Microseconds of CPU time of one call."""
    benchmark.group = f"{size:,} tokens"
    benchmark.pedantic(choose, rounds=200, warmup_rounds=10)
    benchmark.extra_info["kind"] = kind
    benchmark.extra_info["microseconds a token"] = round(benchmark.stats["median"] * 1e6, 1)


@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", KINDS)
def test_sampling(benchmark: Any, kind: str, size: int) -> None:
    """One token of one sequence."""
    params = GenerationParams(max_tokens=1, sampling=SamplingParams(seed=1, **KINDS[kind]))
    request = Request(id="one", prompt=Prompt(tuple(range(3, 103))), params=params)
    row, words = row_of(size), Words(size)
    workspace = Workspace(size)
    guides = Guides(words)  # pyright: ignore[reportArgumentType]
    sampler = Sampler(request, words, workspace, guides)  # pyright: ignore[reportArgumentType]
    measure(benchmark, size, kind, lambda: sampler.sample(row))
    sampler.free()


@pytest.mark.benchmark(timer=time.thread_time)
@pytest.mark.parametrize("size", SIZES)
def test_logprobs(benchmark: Any, size: int) -> None:
    """ln p of one token and of the five likeliest."""
    row = row_of(size)
    measure(benchmark, size, "logprobs 5", lambda: token_logprob(row, 7, 5))
