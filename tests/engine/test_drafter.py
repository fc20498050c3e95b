"""Guesses of a draft model: fewer steps, the same tokens, and none where they do not pay."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tests.engine.driving import (
    GUESSED_LIMITS,
    GUESSED_VOCABULARY,
    PREFIX,
    Guessed,
    check_books,
    run,
    tokens_of,
)
from tests.support.fakes import FakeBackend
from worker.engine.backend import BatchError, OutOfCells, OutputRow
from worker.engine.draft import GuessLimits
from worker.engine.drafts.guesser import Drafting
from worker.engine.drafts.rounds import in_common
from worker.engine.engine import Engine


class Guessing(FakeBackend):
    """Its likeliest token is another one for this share of the rows."""

    errors = 0.0
    draw = random.Random()

    def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
        return np.roll(super().logits(row, drawn_by), int(self.draw.random() < self.errors))


class Pair(Guessed):
    """A model whose steps take 1 s, and one whose steps take a twentieth and that guesses.

    right: whether it guesses what the model samples; else nothing that it would
    """

    def __init__(self, *, right: bool = True, errors: float = 0.0, **options: Any) -> None:
        self.target = FakeBackend(**{**GUESSED_LIMITS, **options})
        self.draft = Guessing(**GUESSED_LIMITS, memory=None if right else 1)
        self.draft.errors, self.draft.draw = errors, random.Random(3)
        self.engine = Engine(self.target, self.clock, drafting=Drafting(model=self.draft))

    def clock(self) -> float:
        return self.target.now + self.draft.now / 20


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("window", [None, 8])
def test_it_saves_steps(streams: bool, window: int | None) -> None:
    """A model that guesses right saves most of the steps, in either layout of the cells."""
    pair = Pair(streams=streams, window=window)
    if window:
        pair.draft.memory = window
    pair.ask("a", [5, 6, 7], 120)
    deltas = run(pair.engine)
    pair.check(deltas, "a", [5, 6, 7], 120)
    assert pair.engine.snapshot.num_steps < 60
    last = deltas["a"][-1]
    assert last.accepted_tokens == last.drafted_tokens > 60
    assert pair.engine.snapshot.stats.accepted_tokens == last.accepted_tokens
    check_books(pair.engine, pair.target)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ([], [1], 0),
        ([1, 2], [1, 2], 2),
        ([1, 2, 3], [1, 2], 2),
        ([1, 2], [1, 9, 3], 1),
        ([4], [5], 0),
    ],
)
def test_what_two_texts_have_in_common(one: list[int], other: list[int], count: int) -> None:
    """They begin with so many equal tokens; one may be longer."""
    assert in_common(np.array(one, np.int32), np.array(other, np.int32)) == count


def test_a_guess_is_no_longer_than_allowed() -> None:
    """By a model and from the text; and it ends before a token that is less likely than allowed."""
    for limits, most in ((GuessLimits(longest=1), 1), (GuessLimits(longest=2), 2)):
        pair = Pair()
        drafting = Drafting(model=pair.draft, limits=limits)
        pair.engine = Engine(pair.target, pair.clock, drafting=drafting)
        pair.ask("a", [5, 6, 7], 60)
        pair.check(run(pair.engine), "a", [5, 6, 7], 60)
        stats = pair.engine.snapshot
        assert 0 < stats.stats.accepted_tokens <= most * stats.num_steps
    pair = Pair()
    drafting = Drafting(model=pair.draft, limits=GuessLimits(least=1.0))
    pair.engine = Engine(pair.target, pair.clock, drafting=drafting)
    pair.ask("a", [5, 6, 7], 60)
    pair.check(run(pair.engine), "a", [5, 6, 7], 60)
    assert pair.engine.snapshot.stats.drafted_tokens == 0


def test_what_is_never_right_is_switched_off() -> None:
    """Of hundreds of steps a few verify wrong guesses."""
    pair = Pair(right=False)
    pair.ask("a", [5, 6, 7], 600)
    deltas = run(pair.engine)
    pair.check(deltas, "a", [5, 6, 7], 600)
    assert 0 < deltas["a"][-1].drafted_tokens < 40
    assert pair.draft.rows_computed < 800  # it also reads what it missed meanwhile


def test_it_comes_on_again() -> None:
    """A model that begins to be right is used again."""
    pair = Pair(right=False)

    def begin() -> None:
        pair.draft.memory = None

    assert pair.come_on_again(begin) < 500


def test_what_it_gains() -> None:
    """Right 7 times in 10, where 4 rows cost 1.75 of one: 1.3 times the tokens of no drafts."""
    pair = Pair(errors=0.3, per_row=1 / 3)
    pair.ask("a", [5, 6, 7], 1500)
    deltas = run(pair.engine)
    pair.check(deltas, "a", [5, 6, 7], 1500)
    alone = len(tokens_of(deltas["a"])) * (1 + pair.target.per_row)
    assert alone / pair.clock() > 1.28


def test_dear_guesses_are_not_made() -> None:
    """A draft model that takes as long as the model itself is not used, however right it is."""
    pair = Pair()
    pair.engine = Engine(
        pair.target,
        lambda: pair.target.now + pair.draft.now,
        drafting=Drafting(model=pair.draft),
    )
    pair.ask("a", [5, 6, 7], 300)
    deltas = run(pair.engine)
    pair.check(deltas, "a", [5, 6, 7], 300)
    assert deltas["a"][-1].drafted_tokens < 30


def test_several_streams_with_a_common_beginning() -> None:
    """Each stream gets what it gets alone; the draft model reads the beginning once."""
    pair = Pair()
    prompts = {f"r{i}": [*PREFIX, 50 + i] for i in range(4)}
    for name, prompt in prompts.items():
        pair.ask(name, prompt)
    deltas = run(pair.engine)
    for name, prompt in prompts.items():
        pair.check(deltas, name, prompt)
    assert pair.engine.snapshot.stats.accepted_tokens > 100
    written = sum(len(tokens_of(found)) for found in deltas.values())
    assert pair.draft.rows_computed < written + 2 * len(PREFIX) + 40


def test_more_streams_than_the_draft_model_has_cells_for() -> None:
    """Where its cells run out it forgets the others, or guesses nothing."""
    pair = Pair()
    pair.draft.num_cells = pair.draft.max_length = 60
    prompts = {f"r{i}": [40 + i, *PREFIX] for i in range(8)}
    for name, prompt in prompts.items():
        pair.ask(name, prompt, 40)
    deltas = run(pair.engine)
    for name, prompt in prompts.items():
        pair.check(deltas, name, prompt, 40)


def test_aborts_and_preemption() -> None:
    """Who leaves or is put back leaves nothing behind that another one could read."""
    Pair(num_cells=120, num_slots=3).leave_and_put_back()


@pytest.mark.parametrize("failure", [OutOfCells, BatchError])
def test_its_failures_are_its_own(failure: type[Exception]) -> None:
    """Where the draft model fails, the model goes on alone."""
    pair = Pair()
    pair.draft.failures = [None, None, failure]
    pair.ask("a", [5, 6, 7])
    deltas = run(pair.engine)
    pair.check(deltas, "a", [5, 6, 7])
    rows = pair.draft.rows_computed
    pair.ask("b", [9, 6, 7])
    pair.check(run(pair.engine), "b", [9, 6, 7])
    assert (pair.draft.rows_computed > rows) is (failure is OutOfCells)


def test_a_long_prompt_is_read_in_parts() -> None:
    """The draft model reads a prompt in parts that make no stream wait for long."""
    pair = Pair()
    prompt = [1 + i % 40 for i in range(1_000)]
    pair.ask("a", prompt, 200)
    deltas = run(pair.engine)
    pair.check(deltas, "a", prompt, 200)
    assert max(pair.draft.batch_sizes) <= 64
    assert deltas["a"][-1].accepted_tokens > 50


def test_other_vocabulary_sizes() -> None:
    """Ids beyond either vocabulary are neither read nor guessed."""
    for size in (GUESSED_VOCABULARY - 100, GUESSED_VOCABULARY + 100):
        pair = Pair()
        pair.draft.vocab_size = size
        pair.ask("a", [5, GUESSED_VOCABULARY - 1, 7])
        pair.check(run(pair.engine), "a", [5, GUESSED_VOCABULARY - 1, 7])
