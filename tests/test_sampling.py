"""Samplers against `tests/support/models/reference.py`, and what seeds do."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.test_step import NullBackend
from tests.proof import RecordingBackend, prompt_tokens, run
from tests.support.cases import for_each
from tests.support.models import reference
from tests.support.models.ggufs import write_llama
from tests.support.models.reference import Floats, ReferenceLlama
from tests.support.rows import chances, dense, fits
from worker.engine.backend import OutputRow
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.engine.sequence import Delta

Filter = Callable[[Floats], Floats]
CONTEXT = 512
VOCAB = 320
END = 2
DRAWS = 100_000 if os.environ.get("EXHAUSTIVE") else 10_000
STREAMS = 8
#: Two shapes of distribution: a few candidates that matter, and hundreds.
KNOWN_LOGITS = {
    "sharp": np.random.default_rng(0).normal(0, 3, VOCAB).astype(np.float32),
    "flat": np.random.default_rng(1).normal(0, 0.7, VOCAB).astype(np.float32),
}
#: A text that repeats itself: runs of 1 to 4 tokens that stood there before.
HISTORY = [5, 6, 7, 8, 9, 10, 5, 6, 7, 8, 20, 21, 7, 8, 9, 20, 5, 6, 7, 8]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny F32 Llama."""
    return write_llama(tmp_path_factory.mktemp("sampling") / "tiny.gguf", vocab_size=VOCAB)


@pytest.fixture(scope="module")
def backend(path: Path) -> Iterator[RecordingBackend]:
    """The tiny model in the mode that agrees with the reference to rounding."""
    with RecordingBackend(path, exact=True) as backend:
        assert isinstance(backend, RecordingBackend)
        yield backend


def judge(
    backend: RecordingBackend,
    logits: Floats,
    prompt: Sequence[int] = (5,),
    written: Sequence[int] = (),
    **params: Any,
) -> dict[int, float]:
    """Token id -> probability after the native chain of these sampling parameters, where the answer
    has these tokens already."""
    sampling = SamplingParams(seed=1, **params)
    request = Request(
        id="judge",
        prompt=Prompt(tuple(prompt)),
        params=GenerationParams(max_tokens=1, sampling=sampling),
    )
    sampler = backend.make_sampler(request)
    try:
        for token in written:
            only = np.full(VOCAB, -math.inf, np.float32)
            only[token] = 0
            assert sampler.sample(only) == token
        return chances(sampler, logits)
    finally:
        backend.free_sampler(sampler)


def check(got: dict[int, float], want: Floats) -> None:
    """The same candidates survive, with the same probabilities."""
    assert got.keys() == reference.survivors(want)
    right = reference.probabilities(want)
    assert all(got[i] == pytest.approx(right[i], rel=1e-4, abs=1e-7) for i in got)


FILTERS: list[tuple[dict[str, Any], Filter]] = [
    ({}, lambda z: z),
    *(({"temperature": t}, lambda z, t=t: reference.temperature(z, t)) for t in (0.3, 0.8, 2.0)),
    *(({"top_k": k}, lambda z, k=k: reference.top_k(z, k)) for k in (0, 1, 7, 200, 10_000)),
    *(({"top_p": p}, lambda z, p=p: reference.top_p(z, p)) for p in (0.0, 0.1, 0.5, 0.9, 0.99)),
    *(({"min_p": p}, lambda z, p=p: reference.min_p(z, p)) for p in (0.001, 0.05, 0.3, 1.0)),
    *(({"typical_p": p}, lambda z, p=p: reference.typical_p(z, p)) for p in (0.1, 0.5, 0.9)),
    *(
        ({"xtc_probability": 1.0, "xtc_threshold": t}, lambda z, t=t: reference.xtc(z, t))
        for t in (0.002, 0.01, 0.05, 0.3, 0.51)
    ),
    *(
        ({"mirostat": 1, "mirostat_tau": tau}, lambda z, tau=tau: reference.mirostat(z, 2 * tau))
        for tau in (1.0, 3.0, 4.0)
    ),
    *(
        ({"mirostat": 2, "mirostat_tau": tau}, lambda z, tau=tau: reference.mirostat_v2(z, 2 * tau))
        for tau in (1.0, 3.0, 4.0)
    ),
    (
        {"logit_bias": ((5, 2.5), (6, -3.0), (7, -math.inf))},
        lambda z: reference.logit_bias(z, {5: 2.5, 6: -3.0, 7: -math.inf}),
    ),
    ({"ignore_eos": True}, lambda z: reference.logit_bias(z, {END: -math.inf})),
    ({"min_tokens": 1}, lambda z: reference.logit_bias(z, {END: -math.inf})),
]


@for_each("shape", KNOWN_LOGITS)
@for_each(("params", "definition"), FILTERS)
def test_filter_keeps_what_its_definition_keeps(
    backend: RecordingBackend, shape: str, params: dict[str, Any], definition: Filter
) -> None:
    """Each filter alone leaves the candidates and probabilities of its definition."""
    logits = KNOWN_LOGITS[shape]
    check(judge(backend, logits, **params), definition(logits))


@pytest.mark.parametrize("shape", KNOWN_LOGITS)
def test_filters_apply_in_the_documented_order(backend: RecordingBackend, shape: str) -> None:
    """All together: bias, penalties, DRY, top-k, typical, top-p, min-p, XTC, temperature."""
    z = logits = KNOWN_LOGITS[shape]
    got = judge(
        backend, logits, HISTORY, logit_bias=((5, 2.0),), repeat_penalty=1.2, dry_multiplier=0.8,
        dry_sequence_breakers=(), top_k=60, typical_p=0.95, top_p=0.9, min_p=0.02,
        xtc_probability=1.0, xtc_threshold=0.05, temperature=0.7,
    )  # fmt: skip
    z = reference.logit_bias(z, {5: 2.0})
    z = reference.penalties(z, HISTORY, 64, repeat=1.2)
    z = reference.dry(z, HISTORY, CONTEXT, multiplier=0.8, base=1.75, allowed_length=2)
    z = reference.typical_p(reference.top_k(z, 60), 0.95)
    z = reference.min_p(reference.top_p(z, 0.9), 0.02)
    check(got, reference.temperature(reference.xtc(z, 0.05), 0.7))


@pytest.mark.parametrize("bias", [-math.inf, -100.0])
def test_typical_p_ignores_banned_candidates(backend: RecordingBackend, bias: float) -> None:
    """A candidate without probability does not change which others are typical."""
    logits = KNOWN_LOGITS["sharp"]
    got = judge(backend, logits, typical_p=0.5, logit_bias=((6, bias),))
    check(got, reference.typical_p(reference.logit_bias(logits, {6: bias}), 0.5))


@for_each("last_n", [-1, 0, 1, 6, 64])
@for_each("num_written", [0, 3, len(HISTORY)])
@for_each(
    ("repeat", "frequency", "presence"),
    [(1.3, 0.0, 0.0), (0.8, 0.0, 0.0), (1.0, 0.4, 0.0), (1.0, 0.0, -0.6), (1.1, -3.0, 2.5)],
)
def test_penalties_count_what_their_apis_say(
    backend: RecordingBackend,
    last_n: int,
    num_written: int,
    repeat: float,
    frequency: float,
    presence: float,
) -> None:
    """repeat_penalty counts the last `last_n` tokens, the prompt's too (-1 is all, 0 is none);
    presence and frequency count the answer, all of it, and never the prompt."""
    logits = KNOWN_LOGITS["sharp"]
    history = [11, *HISTORY]
    cut = len(history) - num_written
    prompt, written = history[:cut], history[cut:]
    got = judge(
        backend, logits, prompt, written, repeat_last_n=last_n, repeat_penalty=repeat,
        frequency_penalty=frequency, presence_penalty=presence,
    )  # fmt: skip
    want = reference.penalties(logits, history, CONTEXT if last_n < 0 else last_n, repeat=repeat)
    want = reference.penalties(want, written, CONTEXT, frequency=frequency, presence=presence)
    check(got, want)


@for_each("last_n", [-1, 0, 3, 9, 64])
@for_each("allowed_length", [1, 2, 4])
@for_each("breakers", [(), ("x",)])
def test_dry_penalises_continued_repeats(
    backend: RecordingBackend, last_n: int, allowed_length: int, breakers: tuple[str, ...]
) -> None:
    """DRY charges by the length of the run that a token would continue; breakers end runs."""
    logits = KNOWN_LOGITS["flat"]
    broken = {
        i for i, piece in enumerate(backend.pieces) if any(b.encode() in piece for b in breakers)
    }
    # The second half repeats with a breaker inside, so that it matters where runs are cut.
    history = HISTORY if not broken else [6, min(broken), 7, 8, 9, 6, min(broken), 7, 8]
    got = judge(
        backend, logits, history, dry_multiplier=0.8, dry_base=1.75, dry_penalty_last_n=last_n,
        dry_allowed_length=allowed_length, dry_sequence_breakers=breakers,
    )  # fmt: skip
    want = reference.dry(
        logits, history, CONTEXT if last_n < 0 else last_n,
        multiplier=0.8, base=1.75, allowed_length=allowed_length, breakers=broken,
    )  # fmt: skip
    check(got, want)


def sample(backend: RecordingBackend, count: int = 40, **params: Any) -> list[int]:
    """Tokens that the engine samples after a fixed prompt."""
    prompt = tuple(prompt_tokens(VOCAB, 12))
    sampling = SamplingParams(ignore_eos=True, **params)
    asked = Request(
        id="one",
        prompt=Prompt(prompt),
        params=GenerationParams(max_tokens=count, sampling=sampling),
    )
    return run(backend, [asked])["one"][len(prompt) :]


@pytest.mark.parametrize("repeat", [1.0, 1.5])
def test_greedy_takes_the_reference_model_s_best_token(
    backend: RecordingBackend, path: Path, repeat: float
) -> None:
    """Temperature 0 is argmax of the penalised logits at every step, sampled tokens counted."""
    model, cache = ReferenceLlama(path), reference.Cache()
    known = prompt_tokens(VOCAB, 12)
    for _ in range(40):
        logits = model.forward(known[len(cache) :], cache).logits[-1]
        logits = reference.logit_bias(logits, {END: -math.inf})
        logits = reference.penalties(logits, known, 64, repeat=repeat)
        known.append(int(logits.argmax()))
    assert sample(backend, temperature=0, repeat_penalty=repeat) == known[12:]


def test_greedy_repeats(backend: RecordingBackend) -> None:
    """Temperature 0 gives the same tokens again, whatever the seed."""
    assert sample(backend, temperature=0, seed=1) == sample(backend, temperature=0, seed=2)


def test_a_seed_repeats_and_another_varies(backend: RecordingBackend) -> None:
    """Temperature above 0: equal seeds give equal tokens, different seeds different ones."""
    runs = [sample(backend, temperature=0.8, seed=seed) for seed in (7, 7, 8)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_without_a_seed_runs_vary(backend: RecordingBackend) -> None:
    """No seed means a random one: 40 tokens of a flat model do not come twice."""
    assert sample(backend) != sample(backend)


def test_the_largest_seed_repeats_too(backend: RecordingBackend) -> None:
    """2**32 - 1, which llama.cpp takes for "random", is a seed like any other."""
    assert sample(backend, seed=2**32 - 1) == sample(backend, seed=2**32 - 1)


def test_xtc_fires_with_its_probability(backend: RecordingBackend) -> None:
    """At probability 0.3, about 30 % of 400 seeds lose their top choices."""
    logits = KNOWN_LOGITS["sharp"]
    cut, whole = reference.survivors(reference.xtc(logits, 0.05)), frozenset(range(VOCAB))
    fired = 0
    for seed in range(400):
        sampling = SamplingParams(seed=seed, xtc_probability=0.3, xtc_threshold=0.05)
        request = Request(
            id="xtc", prompt=Prompt((5,)), params=GenerationParams(max_tokens=1, sampling=sampling)
        )
        sampler = backend.make_sampler(request)
        left = chances(sampler, logits).keys()
        backend.free_sampler(sampler)
        assert left in (cut, whole)
        fired += left == cut
    # Four standard deviations of a binomial around 120.
    assert abs(fired - 120) < 4 * math.sqrt(400 * 0.3 * 0.7)


@pytest.mark.parametrize("temperature", [0.5, 1.5])
def test_draws_follow_the_softmax(
    backend: RecordingBackend, path: Path, temperature: float
) -> None:
    """First tokens of 800 seeds fit softmax(z / t) of the reference: chi-square, p > 0.001."""
    count = 800
    prompt = prompt_tokens(VOCAB, 12)
    sampled = run(
        backend,
        [
            Request(
                id=str(seed),
                prompt=Prompt(tuple(prompt)),
                params=GenerationParams(
                    max_tokens=1, sampling=SamplingParams(seed=seed, temperature=temperature)
                ),
            )
            for seed in range(count)
        ],
    )
    logits = ReferenceLlama(path).forward(prompt).logits[-1]
    right = reference.probabilities(reference.temperature(logits, temperature))
    assert fits([tokens[-1] for tokens in sampled.values()], right)


class Drawn(NullBackend):
    """One row of logits at each place, and the worker's own samplers.

    drawn  (token, the guess that its draw was to confirm; -1: none)
    """

    def __init__(self, backend: RecordingBackend, row: Floats) -> None:
        super().__init__(STREAMS, 2 * DRAWS)
        self.vocab_size, self._row = VOCAB, row
        self.make_sampler = backend.make_sampler
        self.drawn: list[tuple[int, int]] = []

    def sample(self, row: OutputRow, sampler: Any) -> int:
        assert isinstance(row, int)
        batch, after = self.batch, row + 1
        is_guessed = after < batch.size and batch.slots[after] == batch.slots[row]
        token = sampler.sample(self._row)
        self.drawn.append((token, int(batch.tokens[after]) if is_guessed else -1))
        return token


@pytest.mark.parametrize("params", [{"temperature": 0.5}, {"top_k": 6}, {"top_p": 0.6}], ids=str)
def test_guesses_leave_draws_as_they_are(backend: RecordingBackend, params: dict[str, Any]) -> None:
    """Of many draws at one place: all of them, and those that were to confirm one guess."""
    row = KNOWN_LOGITS["sharp"]
    right = dense(judge(backend, row, ignore_eos=True, **params), VOCAB)
    drawn, clock = Drawn(backend, row), itertools.count()
    engine = Engine(drawn, lambda: next(clock) * 1e-4, drafting=Drafting(looks_up=True))
    for seed in range(STREAMS):
        sampling = SamplingParams(seed=seed, ignore_eos=True, **params)
        asked = GenerationParams(max_tokens=DRAWS // STREAMS, sampling=sampling)
        engine.add(Request(id=str(seed), prompt=Prompt((5,)), params=asked))
    while not engine.is_idle:
        engine.step()
    stats = engine.snapshot.stats
    assert 0.1 < stats.accepted_tokens / stats.drafted_tokens < 0.9
    tokens, guesses = np.array(drawn.drawn).T
    assert len(tokens) == DRAWS
    assert fits(tokens, right)
    (count, guess), *_ = sorted(((guesses == each).sum(), each) for each in range(VOCAB))[::-1]
    assert count > DRAWS // 50
    assert fits(tokens[guesses == guess], right)


@pytest.mark.parametrize("params", [{"top_k": 40}, {"top_p": 0.8}], ids=str)
def test_seeds_repeat_for_who_was_put_back(
    backend: RecordingBackend, params: dict[str, Any]
) -> None:
    """Three texts that do not fit the cells together read as those that had them alone."""
    asked = [
        Request(
            id=str(seed),
            prompt=Prompt(tuple(prompt_tokens(VOCAB, 12, seed))),
            params=GenerationParams(
                max_tokens=180, sampling=SamplingParams(seed=seed, ignore_eos=True, **params)
            ),
        )
        for seed in range(3)
    ]
    backend.context.clear()
    engine = Engine(backend, clock=lambda: 0.0)
    for request in asked:
        engine.add(request)
    together: dict[str, list[int]] = {request.id: list(request.prompt.tokens) for request in asked}
    while not engine.is_idle:
        for delta in engine.step():
            assert delta.token is not None
            together[delta.id].append(delta.token)
    assert engine.snapshot.num_preempted
    for request in asked:
        backend.context.clear()
        assert run(backend, [request])[request.id] == together[request.id]


def test_seeds_repeat_with_drafts(backend: RecordingBackend) -> None:
    """A row that is computed for nothing costs no random number."""
    sampling = SamplingParams(
        seed=3, ignore_eos=True, logit_bias=tuple((token, 9.0) for token in (5, 6)), top_p=0.9
    )
    asked = Request(
        id="one",
        prompt=Prompt((5, 6) * 12),
        params=GenerationParams(max_tokens=100, sampling=sampling),
    )
    clock = itertools.count()
    backend.context.clear()
    engine = Engine(backend, clock=lambda: next(clock) / 100, drafting=Drafting(looks_up=True))
    engine.add(asked)
    deltas: list[Delta] = []
    while not engine.is_idle:
        deltas += engine.step()
    assert 0 < deltas[-1].accepted_tokens < deltas[-1].drafted_tokens
    tokens = [*asked.prompt.tokens, *(delta.token for delta in deltas)]
    backend.context.clear()
    assert tokens == run(backend, [asked])["one"]


def test_end_is_banned_until_min_tokens(backend: RecordingBackend) -> None:
    """Where the model would always end, it ends right after `min_tokens` tokens."""
    sampling = SamplingParams(temperature=0, logit_bias=((END, 100.0),), min_tokens=5)
    asked = Request(
        id="one", prompt=Prompt((5,)), params=GenerationParams(max_tokens=20, sampling=sampling)
    )
    tokens = run(backend, [asked])["one"][1:]
    assert tokens.index(END) == 5
    assert len(tokens) == 6
