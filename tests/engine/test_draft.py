"""Guesses from the text itself, and what any guess must promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.engine.driving import request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.engine.cost import StepCost
from worker.engine.draft import Draft, HitRates, best_rows, gains
from worker.engine.drafts.guesser import Drafting, Trial
from worker.engine.engine import Engine
from worker.engine.lookup import CHANGED, MAX_GUESS, Lookup, Trail


def drafting_engine(backend: FakeBackend) -> Engine:
    return Engine(backend, lambda: backend.now, drafting=Drafting(looks_up=True))


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


def test_a_guess_is_judged_once() -> None:
    """Steps that read a prompt make no guesses, and nothing is learned from the last one there."""
    backend = FakeBackend(
        num_cells=6_000, num_slots=4, vocab_size=600, memory=1, capacity=64, max_outputs=64,
        per_row=0.02,
    )  # fmt: skip
    engine = drafting_engine(backend)
    engine.add(request("a", [5, 6, 7], max_tokens=3000))
    for _ in range(70):
        engine.step()
    engine.add(request("b", [1 + number % 500 for number in range(1500)], max_tokens=1))
    (draft,) = (sequence.draft for sequence in engine.scheduler.running)
    assert draft is not None
    known = draft.chance(40)
    while engine.status_of("b"):
        engine.step()
    assert draft.chance(40) >= known > 0.9


def test_scoring_and_drafting_do_not_mix() -> None:
    """A sequence whose prompt is scored is not drafted for, and gets its tokens."""
    backend = FakeBackend(num_cells=400, vocab_size=12, memory=1, max_outputs=32)
    prompt = [5, 6, 7] * 8
    engine = drafting_engine(backend)
    engine.add(request("a", prompt, max_tokens=20, prompt_logprobs=1, logprobs=1))
    deltas = run(engine)["a"]
    assert tokens_of(deltas) == continuation(prompt, 20, backend.vocab_size, 1)
    assert deltas[-1].drafted_tokens == 0


def test_states_that_cannot_be_cut() -> None:
    """Beside others nothing is guessed: the states before wrong guesses would be lost."""
    backend = FakeBackend(
        num_cells=600, vocab_size=12, memory=1, max_outputs=32, cuts_tails=False, takes_back=7
    )
    engine, prompt = drafting_engine(backend), [8, 9] * 6
    engine.add(request("a", [5, 6, 7] * 8, max_tokens=400))
    for _ in range(20):
        engine.step()
    engine.add(request("b", prompt, max_tokens=20))
    deltas = run(engine)
    assert deltas["a"][-1].accepted_tokens > 100
    assert deltas["b"][-1].drafted_tokens == 0
    assert tokens_of(deltas["b"]) == continuation(prompt, 20, backend.vocab_size, 1)


def test_dear_rows_are_not_drafted() -> None:
    """Where a row costs as much as a step nothing is drafted for text that never repeats."""
    steps, drafted, _ = steps_for(per_row=1.0, memory=None)
    assert drafted == 0
    assert steps >= 60


def test_guess_is_what_followed_last() -> None:
    """The newest earlier place of the last three tokens is found, also by an index that grew."""
    tokens = np.array([1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3], np.int32)
    lookup, grown = Lookup(), Lookup()
    assert lookup.find(tokens, len(tokens)) == (7, 3)
    found = [grown.find(tokens, known) for known in range(1, len(tokens) + 1)]
    assert found[-1] == (7, 3)
    assert found[:6] == [(0, 0)] * 6


def test_what_repeats_goes_on_repeating() -> None:
    """A trail through the same text begins again where that ends, up to the limit; one through
    others' texts ends with theirs."""
    tokens = np.array([1, 2, 3, 9, 1, 2, 3, 8, 7, 1, 2, 3, 0, 0], np.int32)
    trail = Trail()
    assert trail.next(tokens, 12, 100) == []
    trail.begin(tokens, 7, 3, 12)
    assert trail.next(tokens, 12, 100) == ([8, 7, 1, 2, 3] * 10)[:MAX_GUESS]
    assert trail.next(tokens, 12, 2) == [8, 7]
    trail.begin(np.array([5, 6, 7, -3, 8], np.int32), 1, 1, 12)
    assert trail.next(tokens, 12, 100) == [6, 7]


@pytest.mark.parametrize(
    ("written", "same", "guess"),
    [
        ([], 6, [7, 8, 9]),
        ([7, 8], 8, [9, 10, 11]),
        ([7, 60], CHANGED, [9, 10, 11]),
        ([60], CHANGED, [8, 9, 10]),
        ([60, 8], CHANGED + 1, [9, 10, 11]),
        ([60, 70], 0, []),
    ],
)
def test_a_trail_goes_on_behind_one_token_that_is_another(
    written: list[int], same: int, guess: list[int]
) -> None:
    """It counts less there, and two of them in a row end it, in one step or in several."""
    text = np.arange(1, 20, dtype=np.int32)
    tokens = np.array([*range(1, 7), *written], np.int32)
    trail = Trail()
    trail.begin(text, 6, 6, 6)
    for known in range(6, len(tokens) + 1):
        trail.follow(tokens, known)
    assert (trail.same, trail.next(tokens, len(tokens), 3)) == (same, guess)
    at_once = Trail()
    at_once.begin(text, 6, 6, 6)
    at_once.follow(tokens, len(tokens))
    assert at_once.same == (0 if 60 in written[:-1] else same)


def test_a_trail_ends_with_its_text() -> None:
    """What stands behind another text's end is never repeated, whatever is written."""
    text = np.array([1, 2, 3, 4, 5, 6, -1, 8, 9], np.int32)
    for written in (7, 60, 8):
        trail = Trail()
        trail.begin(text, 6, 6, 6)
        assert trail.next(text.copy(), 6, 3) == []
        trail.follow(np.array([*range(1, 7), written], np.int32), 7)
        assert trail.text is None


@pytest.mark.parametrize(("per_row", "rate", "worth"), [(0.05, 0.9, True), (1.0, 0.5, False)])
def test_only_where_it_pays(per_row: float, rate: float, worth: bool) -> None:
    """A guess is verified where the tokens that it saves outweigh the measured cost of its rows."""
    cost = StepCost()
    for rows in range(1, 10):
        cost.observe(rows, 0, 1 + per_row * (rows - 1))
    gained = gains([rate**place for place in range(1, 5)])
    assert (best_rows(gained, 1, cost, 64) > 0) is worth


def test_one_that_copies_does_not_hold_up_the_others() -> None:
    """A sure copy is verified in so many rows as gain more than seven others wait for: a few,
    where it gets many alone."""
    cost = StepCost()
    for rows in range(1, 64):
        cost.observe(rows, 0, 1 + 0.05 * (rows - 1))
    sure = gains([0.98**place for place in range(1, 49)])
    assert best_rows(sure, 1, cost, 64) > 16
    taken = best_rows(sure, 8, cost, 64)
    assert 0 < taken < 8
    assert sum(sure[:taken]) > 8 * math.log(cost.decode(8 + taken) / cost.decode(8))


def test_likelier_guesses_come_first() -> None:
    """Of two sequences the one whose guesses are right gets the rows."""
    record = HitRates()
    good, bad = Draft(record, looks_up=True), Draft(record, looks_up=True)
    for draft in (good, bad):
        for place in range(30):
            draft.offer("text", [place], [5])
            assert draft.judge(0, place if draft is good else -1) is (draft is good)
        draft.offer("text", [1, 2, 3], [5, 6, 7])
    assert min(good.chances()[:2]) > max(bad.chances(), default=0.0)


def test_a_model_is_as_right_as_its_probabilities_were() -> None:
    """What a probability means is learned: here 0.9 is always right and 0.2 never."""
    draft = Draft(HitRates(), looks_up=False)
    draft.offer("model", [], [])
    for _ in range(60):
        for probability, right in ((0.9, True), (0.2, False)):
            draft.offer("model", [7], [probability])
            draft.judge(0, 7 if right else 8)
    assert draft.chance(0.9) > 0.7
    assert draft.chance(0.2) < 0.2


def test_a_longer_run_says_more() -> None:
    """What a number of tokens in common means is learned: here 30 are always right, 3 never."""
    draft = Draft(HitRates(), looks_up=True)
    for _ in range(60):
        for same, right in ((30, True), (3, False)):
            draft.offer("text", [7], [same])
            draft.judge(0, 7 if right else 8)
    assert draft.chance(30) > 0.7
    assert draft.chance(3) < 0.2


def test_a_hiccup_is_forgotten() -> None:
    """One measurement that was far too long counts until the next one."""
    cost = StepCost()
    cost.observe(4, 0, 10.0)
    cost.observe(4, 0, 1.0)
    assert cost.decode(4) == 1.0


@pytest.mark.parametrize(("each", "before"), [(0.1, 0.0), (0.9, 5.0), (3.0, 20.0)])
def test_trials_take_a_share(each: float, before: float) -> None:
    """What never pays is tried again and again, and takes a small share of all steps."""
    trial, taken, tried = Trial(10.0), 0.0, 0
    for _ in range(20_000):
        trial.wait()
        is_new = not tried % 4
        if not trial.is_due(each, before if is_new else 0.0, 4):
            continue
        spent = each + before * is_new
        trial.charge(spent)
        trial.count_step()
        taken, tried = taken + spent, tried + 1
    assert tried > 10
    assert 180 < taken < 215  # ten, and 1 %


def test_a_trial_that_costs_too_much_waits() -> None:
    """A prompt that takes longer to read than was saved is not read for a trial."""
    trial = Trial(2.0)
    assert trial.is_due(0.5, 0.0, 4)
    assert not Trial(2.0).is_due(0.5, 1.0, 4)
    assert Trial(2.0).is_due(0.5, 1.5)


def test_one_bad_measurement_of_a_trial() -> None:
    """A machine that slept for an hour meanwhile: it is tried again some thousand steps later."""
    trial, waited = Trial(10.0), 0
    trial.charge(500_000)
    while not trial.is_due(125_000.0, 0.0, 4):
        trial.wait()
        waited += 1
    assert waited < 10_000
