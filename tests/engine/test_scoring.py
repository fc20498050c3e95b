"""Texts that are scored: what they cost, what they share, how they end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.engine.driving import KINDS, check_books, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation, next_token
from tests.support.models import ggufs
from tests.support.models.architectures import WRITERS
from tests.support.sessions import load, prompt_of
from worker.cache.store import Store
from worker.engine.backend import BatchError
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.scoring import Score, Scored, ScoringRequest, Suffix, log_probabilities
from worker.errors import BackendError, ContextLengthError, RequestError

STATE = [7, 3, 9, 4, 1, 8, 2, 6, 5, 3, 3, 1]


def scores_of(*suffixes: Suffix, name: str = "s", state: list[int] = STATE) -> ScoringRequest:
    return ScoringRequest(id=name, prompt=Prompt(tuple(state)), suffixes=suffixes)


def letters(count: int, first: int = 10) -> list[Suffix]:
    """Suffixes of 3 or 4 tokens, of whose next token three candidates are wanted."""
    return [
        Suffix((first + place, 5, *[2] * (place % 2), 7), candidates=(1, 2, 3))
        for place in range(count)
    ]


def log_p(backend: FakeBackend, tokens: list[int], token: int) -> float:
    """What the fake says of a token behind these."""
    said = next_token(tokens, backend.vocab_size, backend.memory)
    total = np.log(np.exp(5) + backend.vocab_size - 1)
    return (5.0 if token == said else 0.0) - float(total)


def check_scores_of(backend: FakeBackend, asked: ScoringRequest, delta: Any) -> None:
    """The delta holds what the fake says of each suffix, alone."""
    assert isinstance(delta, Scored)
    assert delta.error is None
    state = list(asked.prompt.tokens)
    for suffix, score in zip(asked.suffixes, delta.scores, strict=True):
        tokens = [*state, *(token for each in suffix.chain for token in each.tokens)]
        begin = len(tokens) - suffix.num_scored
        wanted = [log_p(backend, tokens[:at], tokens[at]) for at in range(begin, len(tokens))]
        assert score.tokens == pytest.approx(wanted, abs=1e-6)
        wanted = [log_p(backend, tokens, token) for token in suffix.candidates]
        assert score.candidates == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("streams", [False, True])
def test_scores_are_those_of_each_suffix_alone(kind: dict[str, Any], streams: bool) -> None:
    """In any layout and with any kind of state, each suffix is scored as if it stood there alone:
    its last tokens, and candidates behind it."""
    backend = FakeBackend(num_cells=160, streams=streams, **kind)
    store = Store(1 << 20, needs_rest=backend.needs_rest)
    engine = Engine(backend, lambda: backend.now, store)
    asked = scores_of(
        *letters(5),
        Suffix((20, 6, 9, 3), num_scored=2, candidates=(0, 5)),
        Suffix((21, 6), num_scored=2, candidates=(4,)),
    )
    engine.check(asked)
    engine.add(asked)
    (delta,) = run(engine)["s"]
    check_scores_of(backend, asked, delta)
    check_books(engine, backend)
    assert not backend.live_samplers


@pytest.mark.parametrize("streams", [False, True])
def test_state_is_computed_once(streams: bool) -> None:
    """Many suffixes compute the state's tokens and their own, and no more; a second request over
    the same state computes its suffixes alone, and says how much it found."""
    backend = FakeBackend(num_cells=160, streams=streams)
    engine = engine_over(backend)
    suffixes = letters(40)
    engine.add(scores_of(*suffixes))
    (delta,) = run(engine)["s"]
    own = sum(len(each.tokens) for each in suffixes)
    assert engine.snapshot.stats.computed_tokens == len(STATE) + own
    assert delta.cached_tokens == 0
    assert sum(engine.snapshot.stats.queue_time.counts) == 1  # the request's, not each suffix's
    engine.add(scores_of(*letters(9, first=20), name="again"))
    (delta,) = run(engine)["again"]
    assert engine.snapshot.stats.computed_tokens == len(STATE) + own + sum(
        len(each.tokens) for each in letters(9)
    )
    assert delta.cached_tokens == len(STATE)


@pytest.mark.parametrize("kind", KINDS[1:], ids=repr)
def test_states_that_cannot_be_cut_are_copied(kind: dict[str, Any]) -> None:
    """With windows and recurrent states the state is computed once too, if states are kept."""
    backend = FakeBackend(num_cells=320, **kind)
    engine = Engine(backend, lambda: backend.now, Store(1 << 20, needs_rest=True))
    suffixes, state = letters(12), STATE * 4
    engine.add(scores_of(*suffixes, state=state))
    run(engine)
    own = sum(len(each.tokens) for each in suffixes)
    assert engine.snapshot.stats.computed_tokens == len(state) + own


def test_shared_beginnings_are_computed_once() -> None:
    """Suffixes that begin with another one's tokens go on from there, also after it has ended."""
    backend = FakeBackend(num_cells=320, num_slots=2)
    engine = engine_over(backend)
    question = (11, 12, 13, 14, 15)
    count = len(question)
    root = Suffix(question, candidates=tuple(range(20, 29)), is_shared=True)
    options = [Suffix((20 + n, 3), num_scored=1, candidates=(0,), behind=root) for n in range(9)]
    asked = scores_of(root, *options)
    engine.add(asked)
    (delta,) = run(engine)["s"]
    check_scores_of(backend, asked, delta)
    assert engine.snapshot.stats.computed_tokens == len(STATE) + count + 2 * len(options)


def test_others_do_not_wait_behind_all_suffixes() -> None:
    """Whoever comes after a request of many suffixes runs as soon as one of these has ended."""
    backend = FakeBackend(num_cells=320, num_slots=2)
    engine = engine_over(backend)
    engine.add(scores_of(*letters(40)))
    engine.step()
    engine.add(request("chat", [9, 9, 9], max_tokens=3))
    assert engine.snapshot.num_waiting <= 1
    ended: list[str] = []
    steps = 0
    while not engine.is_idle:
        steps += 1
        ended += [delta.id for delta in engine.step() if delta.is_last]
    assert ended == ["chat", "s"]


def test_streams_write_beside_suffixes() -> None:
    """A stream says the same beside suffixes as alone, and these are scored as alone."""
    backend = FakeBackend(num_cells=320, capacity=32)
    engine = engine_over(backend)
    engine.add(request("chat", [9, 9, 9], max_tokens=20))
    asked = scores_of(*letters(12))
    engine.add(asked)
    deltas = run(engine)
    assert tokens_of(deltas["chat"]) == continuation([9, 9, 9], 20, backend.vocab_size)
    check_scores_of(backend, asked, deltas["s"][-1])


def test_doubtful_scores_are_read_again_alone() -> None:
    """Suffixes whose scores are doubtful have steps of their own then, once, and the state is not
    computed again."""
    backend = FakeBackend(num_cells=320, capacity=32)
    engine = engine_over(backend)
    seen: list[int] = []

    def doubtful(scores: Sequence[Score]) -> list[int]:
        seen.append(len(backend.batch_sizes))
        assert len(scores) == 6
        return [1, 4]

    asked = msgspec.structs.replace(scores_of(*letters(6)), doubtful=doubtful)
    engine.add(asked)
    engine.add(request("chat", [9, 9, 9], max_tokens=30))
    check_scores_of(backend, asked, run(engine)["s"][-1])
    assert len(seen) == 1
    later = backend.batch_sizes[seen[0] :]
    assert later.count(3) == later.count(4) == 1
    assert set(later) == {1, 3, 4}


def test_aborting_frees_everything() -> None:
    """A request that is aborted leaves neither sequences nor cells, wherever its suffixes are."""
    backend = FakeBackend(num_cells=160)
    engine = engine_over(backend)
    engine.add(scores_of(*letters(40)))
    for _ in range(3):
        engine.step()
    status = engine.status_of("s")
    assert status is not None
    assert status.read_tokens >= len(STATE)
    engine.abort("s")
    assert engine.status_of("s") is None
    assert engine.snapshot.num_running == engine.snapshot.num_waiting == 0
    assert run(engine) == {}
    check_books(engine, backend)
    assert engine.snapshot.stats.finished["aborted"] == 1


def test_failure_of_one_suffix_ends_the_request() -> None:
    """A suffix whose batch fails for good ends its request with that error, and no other's."""
    backend = FakeBackend(num_cells=160, poison=49)
    engine = engine_over(backend)
    engine.add(scores_of(*letters(3), Suffix((49,), candidates=(1,)), *letters(3)))
    engine.add(scores_of(*letters(5), name="other"))
    deltas = run(engine)
    assert [type(delta.error) for delta in deltas["s"]] == [BatchError]
    assert deltas["other"][-1].error is None
    assert engine.snapshot.stats.finished["error"] == 1


def test_no_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits that are not numbers end the request with an error, never with probabilities."""
    backend = FakeBackend(num_cells=160)
    engine = engine_over(backend)

    def no_numbers(_row: int, _by: Any = None) -> np.ndarray:
        return np.full(backend.vocab_size, np.nan, np.float32)

    monkeypatch.setattr(backend, "logits", no_numbers)
    engine.add(scores_of(*letters(6)))
    (delta,) = run(engine)["s"]
    assert isinstance(delta.error, BackendError)
    assert delta.error.code == "NOT_FINITE"
    check_books(engine, backend)


def test_log_probabilities_are_of_the_whole_vocabulary() -> None:
    """ln p is the logit less the logarithm of the sum over all logits, to 1e-6."""
    logits = np.random.default_rng(1).normal(0, 5, 100_000).astype(np.float32)
    wide = logits.astype(np.float64)
    wanted = wide[[3, 99_999]] - np.log(np.exp(wide).sum())
    assert log_probabilities(logits, (3, 99_999)) == pytest.approx(wanted, abs=1e-6)
    with pytest.raises(BackendError):
        log_probabilities(np.full(10, -np.inf, np.float32), (1,))


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        (scores_of(Suffix((1, 2)), state=[]), RequestError),
        (scores_of(), RequestError),
        (scores_of(Suffix(())), RequestError),
        (scores_of(Suffix((1,), num_scored=2)), RequestError),
        (scores_of(Suffix((50,))), RequestError),
        (scores_of(Suffix((-1,))), RequestError),
        (scores_of(Suffix((1,), candidates=(50,))), RequestError),
        (scores_of(Suffix((1,) * 200)), ContextLengthError),
    ],
)
def test_what_cannot_be_scored_is_refused(asked: ScoringRequest, error: type[RequestError]) -> None:
    """Native code sees neither unknown tokens nor texts that the context does not hold."""
    with pytest.raises(error):
        engine_over(FakeBackend(num_cells=64)).check(asked)


def test_cells_for_few_suffixes_are_enough() -> None:
    """Where the cache holds the state and one suffix, all suffixes are scored one after another."""
    backend = FakeBackend(num_cells=32)
    engine = engine_over(backend)
    asked = ScoringRequest(
        id="s",
        prompt=Prompt(tuple(STATE)),
        suffixes=tuple(Suffix((n + 1,) * 12, candidates=(1,)) for n in range(6)),
        params=GenerationParams(prompt_param="input"),
    )
    engine.check(asked)
    engine.add(asked)
    check_scores_of(backend, asked, run(engine)["s"][-1])


@pytest.mark.parametrize("unified", [False, True])
def test_scores_of_the_library_are_those_of_echo(tmp_path: Path, unified: bool) -> None:
    """With llama.cpp the scores are those that echo's prompt_logprobs have for the same text,
    within 1e-5, and the state is computed once."""
    path = ggufs.write_llama(tmp_path / "model.gguf")
    state, own = prompt_of(1, 90), [prompt_of(seed, 5 + seed % 3) for seed in range(2, 14)]
    suffixes = tuple(Suffix(tokens, num_scored=3, candidates=(7, 11)) for tokens in own)
    with load(path, num_cells=2048, unified=unified) as backend:
        engine = Engine(backend, time.perf_counter)
        asked = ScoringRequest(id="s", prompt=Prompt(state), suffixes=suffixes)
        engine.check(asked)
        engine.add(asked)
        found: Any = run(engine)["s"][-1]
        computed = engine.snapshot.stats.computed_tokens
        assert computed == len(state) + sum(len(tokens) for tokens in own)
        params = GenerationParams(max_tokens=0, prompt_logprobs=0)
        for tokens, score in zip(own, found.scores, strict=True):
            for place, candidate in enumerate((7, 11)):
                whole = Prompt((*state, *tokens, candidate))
                engine.add(Request(id="echo", prompt=whole, params=params))
                (echo,) = run(engine)["echo"]
                assert echo.prompt_logprobs is not None
                *wanted, last = [each.logprob for each in echo.prompt_logprobs][-4:]
                assert score.tokens == pytest.approx(wanted, abs=1e-5)
                assert score.candidates[place] == pytest.approx(last, abs=1e-5)


@pytest.mark.parametrize("name", ["gemma3", "lfm2", "granitehybrid", "mamba"])
def test_windows_and_recurrent_states_of_the_library_are_copied(name: str, tmp_path: Path) -> None:
    """With llama.cpp a window's cells and a recurrent state are computed once and copied: scores
    are those of each suffix alone, where nothing is kept."""
    path = WRITERS[name](tmp_path / "model.gguf")
    state = prompt_of(1, 90)
    suffixes = tuple(Suffix(prompt_of(seed, 5), candidates=(7, 11)) for seed in range(2, 10))
    with load(path, num_cells=2048) as backend:
        alone: list[Score] = []
        for place, suffix in enumerate(suffixes):
            engine = Engine(backend, time.perf_counter)
            engine.add(scores_of(suffix, name=str(place), state=list(state)))
            alone += scored(engine)
            engine.empty()
        needs_rest = backend.shape.needs_rest
        engine = Engine(backend, time.perf_counter, Store(1 << 26, needs_rest=needs_rest))
        engine.add(scores_of(*suffixes, state=list(state)))
        together = scored(engine)
        computed = engine.snapshot.stats.computed_tokens
    assert computed == len(state) + sum(len(each.tokens) for each in suffixes)
    for one, other in zip(together, alone, strict=True):
        assert one.candidates == pytest.approx(other.candidates, abs=1e-4)


def scored(engine: Engine) -> tuple[Score, ...]:
    """The scores of the only request."""
    ((delta,),) = run(engine).values()
    assert isinstance(delta, Scored)
    assert delta.error is None
    return delta.scores


@pytest.mark.parametrize("streams", [0, 2])
def test_pieces_do_not_depend_on_others(streams: int) -> None:
    """State and suffix are computed in whole tiles and what is left, alone or beside streams, as
    long as a step has room for a tile."""
    backend = FakeBackend(num_cells=960, capacity=160, num_slots=4, per_row=0.001)
    engine = engine_over(backend)
    for number in range(streams):
        engine.add(request(f"chat{number}", [9, 9, number], max_tokens=200))
    for _ in range(4 * bool(streams)):
        engine.step()
    state = [1 + place % 40 for place in range(150)]
    engine.add(scores_of(Suffix(tuple(range(1, 40)) * 2, candidates=(1,)), state=state))
    lengths: list[int] = []
    while engine.status_of("s") is not None:
        engine.step()
        lengths += [each.num_computed for each in engine.snapshot.running if each.id == "s.0"]
    assert {128, 150, 150 + 64} <= {*lengths}
