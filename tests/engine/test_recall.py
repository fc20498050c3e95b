"""Guesses from what the worker read and wrote for others."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.driving import request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.account import NOBODY, Account, account_for
from worker.engine.drafts.guesser import Drafting
from worker.engine.drafts.recall import RUN, Recall, owner_of
from worker.engine.engine import Engine
from worker.engine.lookup import Trail
from worker.engine.sampling import SamplingParams

TEXT = np.arange(100, 200, dtype=np.int32)


def followed(recall: Recall, tokens: np.ndarray, num_known: int) -> tuple[list[int], int]:
    """The six tokens, or fewer to the text's end, at the place found; how many were the same."""
    end, same = recall.find(tokens, num_known)
    trail = Trail()
    if same:
        trail.begin(recall.ring, end, same, num_known)
    return trail.next(tokens, num_known, 6), same


def test_what_followed() -> None:
    """RUN tokens of a text bring what followed them, to its end, and how many were the same."""
    recall = Recall()
    recall.add(TEXT)
    recall.add(TEXT[:5])  # shorter than a run
    asked = np.concatenate([np.array([1, 2], np.int32), TEXT[10:30]])
    assert followed(recall, asked, len(asked)) == (TEXT[30:36].tolist(), 20)
    assert followed(recall, TEXT, 95) == (TEXT[95:].tolist(), 32)
    assert followed(recall, TEXT, len(TEXT)) == ([], 0)


@pytest.mark.parametrize("asked", [TEXT[: RUN - 1], TEXT[::-1].copy(), TEXT[:RUN] + 1000])
def test_what_nobody_wrote(asked: np.ndarray) -> None:
    """Fewer tokens than a run, or others, bring nothing."""
    recall = Recall()
    recall.add(TEXT)
    assert recall.find(asked, len(asked)) == (0, 0)


def test_the_newest_counts_and_the_oldest_is_forgotten() -> None:
    """The ring begins again where it is full."""
    recall = Recall()
    recall.add(TEXT)
    other = np.concatenate([TEXT[:50], TEXT[:50] + 1000])
    recall.add(other)
    assert followed(recall, TEXT, 50)[0] == other[50:56].tolist()
    rng = np.random.default_rng(1)
    for _ in range(12):
        recall.add(rng.integers(2000, 30_000, 100_000).astype(np.int32))
    assert recall.find(TEXT, 50) == (0, 0)


def test_a_place_is_good_until_the_ring_comes_round() -> None:
    """What stands at a place is the same text until as much was written as `until` said."""
    recall, rng, overwritten = Recall(), np.random.default_rng(1), 0
    for _ in range(5):
        recall.add(TEXT)
        (end, _), until = recall.find(TEXT, 50), recall.until(recall.find(TEXT, 50)[0])
        assert recall.written < until
        while recall.written < until:
            assert recall.ring[end : end + 50].tolist() == TEXT[50:].tolist()
            recall.add(rng.integers(2000, 30_000, 200_000).astype(np.int32))
        overwritten += recall.ring[end : end + 50].tolist() != TEXT[50:].tolist()
    assert overwritten > 2  # or what the ring leaves out at its end stood there


def test_what_is_remembered_can_be_read_again() -> None:
    """The texts that `texts` gives bring the same guesses, also once the ring began again."""
    recall, again, rng = Recall(), Recall(), np.random.default_rng(1)
    for _ in range(12):
        recall.add(rng.integers(2000, 30_000, 100_000).astype(np.int32))
    recall.add(TEXT)
    again.read(recall.texts())
    assert followed(again, TEXT, 50) == followed(recall, TEXT, 50) == (TEXT[50:56].tolist(), 32)
    assert len(again.texts()) == len(recall.texts()) > 900_000
    Recall().read(Recall().texts())


def test_texts_are_found_for_whose_they_are() -> None:
    """One account's text is nothing to another's requests, also once it was read again; keys
    without a name share theirs, and a name's batches are its own."""
    recall, again = Recall(), Recall()
    anna, bob = owner_of(Account("anna")), owner_of(Account("bob"))
    user, other = (owner_of(account_for(name)) for name in "uv")
    assert len({anna, bob, user, other, owner_of(NOBODY)}) == 5
    assert owner_of(Account("anna", is_batch=True)) == anna
    recall.add(TEXT, anna)
    recall.add(TEXT + 1000, 0)
    again.read(recall.texts())
    for each in (recall, again):
        assert each.find(TEXT, 50, anna)[1] == 32
        assert not any(each.find(TEXT, 50, whose)[1] for whose in (bob, user, other, 0))
        assert [each.find(TEXT + 1000, 50, whose)[1] for whose in (0, anna)] == [32, 0]


def steps_of(engine: Engine, name: str, seed: int | None = None) -> int:
    """Steps that an answer of 40 tokens took; it is what the model says."""
    before, prompt = engine.snapshot.num_steps, [5, 9, 7, 8, 11, 6, 3, 2, 13]
    sampling = SamplingParams(temperature=0, seed=seed)
    engine.add(request(name, prompt, max_tokens=40, sampling=sampling))
    assert tokens_of(run(engine)[name]) == continuation(prompt, 40, engine.backend.vocab_size, None)
    return engine.snapshot.num_steps - before


def test_a_question_that_comes_again() -> None:
    """It takes fewer steps; not so where it names a seed, which promises one text."""
    backend = FakeBackend(num_cells=400, vocab_size=5000, capacity=64, max_outputs=64)
    drafting = Drafting(looks_up=True, recall=Recall())
    engine = Engine(backend, lambda: backend.now, drafting=drafting)
    first = steps_of(engine, "a")
    assert steps_of(engine, "b") < first / 2
    assert steps_of(engine, "c", seed=5) == first - 1  # its prompt is known
