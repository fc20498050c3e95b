"""Prompt-lookup drafting: fewer steps for text that repeats, the same tokens always."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.driving import request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.engine.cost import StepCost
from worker.engine.draft import Draft, best_length
from worker.engine.engine import Engine


def drafting_engine(backend: FakeBackend) -> Engine:
    return Engine(backend, lambda: backend.now, drafting=True)


def steps_for(per_row: float, memory: int | None) -> tuple[int, int, int]:
    """(steps, drafted, accepted) for 60 tokens."""
    backend = FakeBackend(
        num_cells=200, vocab_size=600, memory=memory, capacity=32, max_outputs=32, per_row=per_row
    )
    engine = drafting_engine(backend)
    engine.add(request("a", [5, 6, 5, 6, 7], max_tokens=60))
    deltas = run(engine)["a"]
    expected = continuation([5, 6, 5, 6, 7], 60, backend.vocab_size, memory)
    assert tokens_of(deltas) == expected
    return engine.snapshot.num_steps, deltas[-1].drafted_tokens, deltas[-1].accepted_tokens


def test_repeating_text_takes_fewer_steps() -> None:
    """Text that repeats is produced in fewer steps than tokens, and the acceptance is reported."""
    backend = FakeBackend(num_cells=400, vocab_size=12, memory=1, capacity=32, max_outputs=32)
    prompt = [3]
    while len(prompt) < 40:  # a prompt that follows the fake's own rule repeats soon
        prompt += continuation(prompt, 1, backend.vocab_size, 1)
        if prompt[-1] == 0:
            prompt[-1] = 5
    engine = drafting_engine(backend)
    engine.add(request("a", prompt, max_tokens=40))
    deltas = run(engine)["a"]
    tokens = tokens_of(deltas)
    assert tokens == continuation(prompt, 40, backend.vocab_size, 1)
    assert deltas[-1].accepted_tokens <= deltas[-1].drafted_tokens
    if len(tokens) > 10:
        assert engine.snapshot.num_steps < len(tokens)
        assert deltas[-1].accepted_tokens > 0


def test_scoring_and_drafting_do_not_mix() -> None:
    """A sequence whose prompt is scored is not drafted for, and gets its tokens."""
    backend = FakeBackend(num_cells=400, vocab_size=12, memory=1, max_outputs=32)
    prompt = [5, 6, 7] * 8
    engine = drafting_engine(backend)
    engine.add(request("a", prompt, max_tokens=20, prompt_logprobs=1, logprobs=1))
    deltas = run(engine)["a"]
    assert tokens_of(deltas) == continuation(prompt, 20, backend.vocab_size, 1)
    assert deltas[-1].drafted_tokens == 0


def test_dear_rows_are_not_drafted() -> None:
    """Where a row costs as much as a step nothing is drafted for text that never repeats."""
    steps, drafted, _ = steps_for(per_row=1.0, memory=None)
    assert drafted == 0
    assert steps >= 60


def test_guess_is_what_followed_last() -> None:
    """The guess continues the newest earlier place of the last three tokens, up to the limit."""
    draft = Draft()
    tokens = np.array([1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3], np.int32)
    draft.guess(tokens, len(tokens), 100)
    assert draft.tokens == [8, 7, 1, 2, 3]
    draft.guess(tokens, len(tokens), 2)
    assert draft.tokens == [8, 7]
    grown = Draft()
    for known in range(1, len(tokens) + 1):
        grown.guess(tokens, known, 100)
    assert grown.tokens == [8, 7, 1, 2, 3]


@pytest.mark.parametrize(("per_row", "rate", "worth"), [(0.05, 0.9, True), (1.0, 0.5, False)])
def test_only_where_it_pays(per_row: float, rate: float, worth: bool) -> None:
    """A draft is used where the tokens that it saves outweigh the measured cost of its rows."""
    cost = StepCost()
    for rows in range(1, 10):
        cost.observe(rows, 0, 1 + per_row * (rows - 1))
    draft = Draft()
    draft.hit_rate = rate
    draft.tokens = [1, 2, 3, 4]
    assert (best_length([draft], 1, cost, 64) > 0) is worth
