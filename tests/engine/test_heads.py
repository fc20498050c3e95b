"""Heads that guess: each state goes to its own place, what is missing costs guesses, no tokens."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driving import GUESSED_LIMITS, PREFIX, Guessed, check_books, run, tokens_of
from tests.support.fakes import FakeBackend
from tests.support.heads import FakeHeads
from worker.cache.store import Store
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine


class Headed(Guessed):
    """A model whose steps take 1 s, with heads whose batches take a twentieth."""

    def __init__(self, *, right: bool = True, store: Store | None = None, drafting: bool = False,
                 **options: Any) -> None:  # fmt: skip
        self.target = FakeBackend(**{**GUESSED_LIMITS, **options})
        self.heads = FakeHeads(self.target, right=right)
        guesses = Drafting(drafting, heads=self.heads)
        self.engine = Engine(self.target, self.clock, store, guesses)

    def clock(self) -> float:
        return self.target.now + self.heads.now


@pytest.fixture(params=[False, True], ids=["heads", "eagle"], autouse=True)
def _encodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore
    """Heads, and a drafter whose states are encoded."""
    monkeypatch.setattr(FakeHeads, "encodes", request.param)


@pytest.mark.parametrize("streams", [False, True])
def test_they_save_steps(streams: bool) -> None:
    """Three tokens a guess, all of them right: a step gives four."""
    headed = Headed(streams=streams)
    headed.ask("a", [5, *PREFIX], 120)
    deltas = run(headed.engine)
    headed.check(deltas, "a", [5, *PREFIX], 120)
    assert headed.engine.snapshot.num_steps < 40
    last = deltas["a"][-1]
    assert last.accepted_tokens == last.drafted_tokens > 80
    assert headed.heads.num_blind == 0
    check_books(headed.engine, headed.target)


def test_a_copy_that_gives_more_comes_first() -> None:
    """Where text runs along a copy, that is longer than what heads guess, right as they are."""
    headed = Headed(memory=1, drafting=True)
    headed.ask("a", [5, 6, 7], 300)
    headed.check(run(headed.engine), "a", [5, 6, 7], 300)
    assert headed.engine.snapshot.num_steps < 300 / 6


def test_what_is_never_right_is_switched_off() -> None:
    """Of hundreds of steps a few verify wrong guesses; the heads read nothing in between."""
    headed = Headed(right=False)
    headed.ask("a", [5, 6, 7], 600)
    deltas = run(headed.engine)
    headed.check(deltas, "a", [5, 6, 7], 600)
    assert 0 < deltas["a"][-1].drafted_tokens < 60


def test_they_come_on_again() -> None:
    """Heads that begin to be right are used again: from where they stopped to rest, all is kept."""
    headed = Headed(right=False)

    def begin() -> None:
        headed.heads.right = True

    assert headed.come_on_again(begin) < 700
    assert headed.heads.num_blind <= 1


def test_several_streams_with_a_common_beginning() -> None:
    """Each stream gets what it gets alone, and the heads share what they read."""
    headed = Headed()
    headed.ask("first", [*PREFIX, 49])
    headed.check(run(headed.engine), "first", [*PREFIX, 49])
    prompts = {f"r{i}": [*PREFIX, 50 + i] for i in range(4)}
    for name, prompt in prompts.items():
        headed.ask(name, prompt)
    deltas = run(headed.engine)
    for name, prompt in prompts.items():
        headed.check(deltas, name, prompt)
    assert headed.engine.snapshot.stats.accepted_tokens > 100
    # Each goes on behind what it shares with one row whose state nobody has.
    assert headed.heads.num_blind <= 4


def test_a_conversation_goes_on() -> None:
    """The next turn has all of the turn before, and needs no row without a state but one."""
    headed = Headed()
    prompt = [5, *PREFIX]
    for turn in range(3):
        headed.ask(f"t{turn}", prompt, 40)
        deltas = run(headed.engine)
        headed.check(deltas, f"t{turn}", prompt, 40)
        prompt = [*prompt, *tokens_of(deltas[f"t{turn}"]), 7, 8 + turn]
        assert deltas[f"t{turn}"][-1].accepted_tokens > 15
    assert headed.heads.num_blind <= 1


def test_a_state_that_comes_back() -> None:
    """Where the model does not compute a prompt's tokens, the heads begin in the middle."""
    store = Store(10**6, needs_rest=False)
    headed = Headed(store=store, num_slots=1)
    headed.ask("a", [5, *PREFIX])
    headed.check(run(headed.engine), "a", [5, *PREFIX])
    headed.ask("other", [9, *PREFIX])
    run(headed.engine)
    headed.ask("b", [5, *PREFIX, 3])
    deltas = run(headed.engine)
    headed.check(deltas, "b", [5, *PREFIX, 3])
    assert deltas["b"][-1].cached_tokens >= len(PREFIX)
    # So what they guess from there on is what they see; a drafter leaves the first row out.
    assert (headed.heads.num_blind > 0) is not FakeHeads.encodes


def test_aborts_and_preemption() -> None:
    """Who leaves or is put back leaves nothing behind that another one could read."""
    Headed(num_cells=120, num_slots=3).leave_and_put_back()


@pytest.mark.parametrize("failure", [OutOfCells, BatchError])
def test_their_failures_are_their_own(failure: type[Exception]) -> None:
    """Where the heads fail, the model goes on alone."""
    headed = Headed()
    headed.heads.failures = [None, None, failure]
    headed.ask("a", [5, 6, 7])
    headed.check(run(headed.engine), "a", [5, 6, 7])
    rows = headed.heads.rows_computed
    headed.ask("b", [9, 6, 7])
    headed.check(run(headed.engine), "b", [9, 6, 7])
    assert (headed.heads.rows_computed > rows) is (failure is OutOfCells)


def test_a_long_prompt_is_read_in_parts() -> None:
    """The heads read a prompt in parts that make no stream wait for long."""
    headed = Headed()
    prompt = [1 + i % 40 for i in range(1_000)]
    headed.ask("a", prompt, 200)
    deltas = run(headed.engine)
    headed.check(deltas, "a", prompt, 200)
    assert deltas["a"][-1].accepted_tokens > 50
    assert headed.heads.num_blind == 0


def test_too_many_states_wait() -> None:
    """Where heads are not asked for long, the states of what was used longest ago are let go."""
    headed = Headed(right=False)
    headed.heads.max_waiting = 100
    for name in "abcd":
        headed.ask(name, [ord(name), *PREFIX], 80)
    deltas = run(headed.engine)
    for name in "abcd":
        headed.check(deltas, name, [ord(name), *PREFIX], 80)
