"""Blocks of guesses: each costs one batch, leaves no cells, and costs no tokens where it fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driving import GUESSED_LIMITS, PREFIX, Guessed, check_books, run
from tests.support.fakes import FakeBackend
from tests.support.heads import FakeBlocks
from worker.cache.store import Store
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine


class Blocks(Guessed):
    """A model whose steps take 1 s, with a drafter whose batches take a twentieth."""

    def __init__(self, *, right: bool = True, store: Store | None = None, **options: Any) -> None:
        self.target = FakeBackend(**{**GUESSED_LIMITS, **options})
        self.drafter = FakeBlocks(self.target, right=right)
        self.engine = Engine(self.target, self.clock, store, Drafting(heads=self.drafter))

    def clock(self) -> float:
        return self.target.now + self.drafter.now


def test_a_block_is_one_batch() -> None:
    """Five tokens a guess, all of them right: a step gives six, for a batch of states and one of a
    block, also where a prompt was longer than a batch."""
    blocks = Blocks()
    batches: list[int] = []
    decode = blocks.drafter.decode

    def counted() -> None:
        batches.append(blocks.drafter.batch.size)
        decode()

    blocks.drafter.decode = counted
    prompt = [5, *PREFIX, *PREFIX, *PREFIX]
    blocks.ask("a", prompt, 120)
    deltas = run(blocks.engine)
    blocks.check(deltas, "a", prompt, 120)
    last = deltas["a"][-1]
    assert last.accepted_tokens == last.drafted_tokens > 93
    assert blocks.engine.snapshot.num_steps < 30
    assert len(batches) < 60
    check_books(blocks.engine, blocks.target)


def test_what_is_never_right_is_switched_off() -> None:
    """Of hundreds of steps a few verify wrong guesses."""
    blocks = Blocks(right=False)
    blocks.ask("a", [5, 6, 7], 400)
    deltas = run(blocks.engine)
    blocks.check(deltas, "a", [5, 6, 7], 400)
    assert 0 < deltas["a"][-1].drafted_tokens < 60


def test_several_streams_with_a_common_beginning() -> None:
    """Each stream gets what it gets alone, more of them than fit one batch of blocks."""
    blocks = Blocks()
    prompts = {f"r{i}": [*PREFIX, 50 + i] for i in range(4)}
    for name, prompt in prompts.items():
        blocks.ask(name, prompt)
    deltas = run(blocks.engine)
    for name, prompt in prompts.items():
        blocks.check(deltas, name, prompt)
    assert blocks.engine.snapshot.stats.accepted_tokens > 100


def test_a_state_that_comes_back() -> None:
    """Where the model does not compute a prompt's tokens, the drafter begins in the middle."""
    blocks = Blocks(store=Store(10**6, needs_rest=False), num_slots=1)
    for name, prompt in (("a", [5, *PREFIX]), ("b", [9, *PREFIX]), ("c", [5, *PREFIX, 3])):
        blocks.ask(name, prompt)
        deltas = run(blocks.engine)
        blocks.check(deltas, name, prompt)
    assert deltas["c"][-1].cached_tokens >= len(PREFIX)
    assert deltas["c"][-1].accepted_tokens > 10


def test_aborts_and_preemption() -> None:
    """Who leaves or is put back leaves nothing behind that another one could read."""
    Blocks(num_cells=120, num_slots=3).leave_and_put_back()


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("failure", [OutOfCells, BatchError])
def test_their_failures_are_their_own(failure: type[Exception], place: int) -> None:
    """Where states or blocks cannot be computed, the model goes on alone."""
    blocks = Blocks()
    blocks.drafter.failures = [*[None] * place, failure]
    blocks.ask("a", [5, 6, 7])
    blocks.check(run(blocks.engine), "a", [5, 6, 7])
    rows = blocks.drafter.rows_computed
    blocks.ask("b", [9, 6, 7])
    blocks.check(run(blocks.engine), "b", [9, 6, 7])
    assert (blocks.drafter.rows_computed > rows) is (failure is OutOfCells)
