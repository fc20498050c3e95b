"""An engine that goes on over another backend of the same model: nothing that it knew is lost."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from typing import Any

import pytest

from tests.engine.driving import GUESSED_LIMITS, KINDS, PREFIX, Guessed, check_books, run, sums_of
from tests.support.fakes import FakeBackend
from tests.support.heads import FakeHeads
from worker.cache.store import Store
from worker.engine.draft import GuessLimits
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine


class Slept(Guessed):
    """An engine with a store, whose backend is replaced; what guesses, too."""

    def __init__(self, guesses: str, **options: Any) -> None:
        self.options = {**GUESSED_LIMITS, **options}
        self.target = FakeBackend(**self.options)
        self.guesses = guesses
        self.draft = self._new_draft()
        self.engine = Engine(
            self.target,
            lambda: self.target.now,
            Store(1 << 24, needs_rest=self.target.shape.needs_rest),
            Drafting(
                guesses == "text",
                model=self.draft if isinstance(self.draft, FakeBackend) else None,
                heads=self.draft if isinstance(self.draft, FakeHeads) else None,
                limits=GuessLimits(longest=3),
            ),
        )

    def _new_draft(self) -> FakeBackend | FakeHeads | None:
        if self.guesses == "heads":
            return FakeHeads(self.target)
        return FakeBackend(**self.options) if self.guesses == "model" else None

    def replace(self) -> weakref.ref[FakeBackend]:
        """As a sleep does it. The old backend, if somebody still holds it."""
        self.engine.empty()
        old, now = weakref.ref(self.target), self.target.now
        self.target = FakeBackend(**self.options)
        self.target.now = now
        self.draft = self._new_draft()
        self.engine.use(self.target, self.draft)
        return old


@pytest.fixture
def uncollected() -> Generator[None]:
    """Python's cycle collector does nothing."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("guesses", ["nothing", "text", "model", "heads"])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_it_says_the_same(kind: dict[str, Any], guesses: str, uncollected: None) -> None:
    """Twice over: the same text, the prompt known, counters that grow, nothing of the old one."""
    slept = Slept(guesses, memory=1, **kind)
    prompt = [5, *PREFIX * 5]
    before: dict[str, float] = {}
    drafted = list[int]()
    for name in "abc":
        slept.ask(name, prompt, 200)
        deltas = run(slept.engine)
        slept.check(deltas, name, prompt, 200)
        check_books(slept.engine, slept.target)
        last = deltas[name][-1]
        assert bool(last.cached_tokens) == (name != "a")
        drafted.append(last.drafted_tokens)
        after = sums_of(slept.engine.snapshot.stats)
        assert not [key for key in before if after[key] < before[key]]
        before = after
        known = slept.engine.scheduler.cost.decode(1)
        assert slept.replace()() is None
        assert slept.engine.scheduler.cost.decode(1) == known > 0
    can_guess = guesses != "nothing" and slept.target.shape.takes_back
    assert all(drafted[1:]) == bool(can_guess)
