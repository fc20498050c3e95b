"""The engine's promises, on a backend whose next token is a fixed function of the text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.driving import engine_over, request, run, tokens_of
from tests.support.fakes import END, FakeBackend, continuation
from worker.engine.backend import BatchError, OutOfCells, OutputRow
from worker.engine.engine import Engine
from worker.errors import RequestError


def test_one_request_gets_its_continuation() -> None:
    """A lone request gets the tokens of its prompt's continuation, then one last delta."""
    backend = FakeBackend()
    engine = engine_over(backend)
    engine.add(request("a", [3, 1, 4]))
    deltas = run(engine)["a"]
    assert tokens_of(deltas) == continuation([3, 1, 4], 8, backend.vocab_size)
    assert [delta.is_last for delta in deltas] == [False] * (len(deltas) - 1) + [True]


def test_neighbours_change_nothing() -> None:
    """Each of many requests gets the tokens that it gets alone."""
    backend = FakeBackend(num_slots=3)
    engine = engine_over(backend)
    prompts = {f"r{i}": [1 + (i * 7 + j) % 40 for j in range(1 + i % 9)] for i in range(12)}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt))
    deltas = run(engine)
    for name, prompt in prompts.items():
        assert tokens_of(deltas[name]) == continuation(prompt, 8, backend.vocab_size)


def test_streams_share_a_step() -> None:
    """Sequences that wait for a token are computed in one batch, with a prompt's chunk beside."""
    backend = FakeBackend(num_cells=256, num_slots=4, capacity=8)
    engine = engine_over(backend)
    for name in "ab":
        engine.add(request(name, [5, 6], max_tokens=30))
    engine.step()
    engine.add(request("c", [7] * 20))
    engine.step()
    assert backend.batch.size == 8
    assert sorted(set(backend.batch.slots[:8].tolist())) == [0, 1, 2]


def test_prompt_longer_than_a_batch() -> None:
    """A prompt longer than the batch is computed in chunks and continues as if at once."""
    backend = FakeBackend(capacity=4)
    engine = engine_over(backend)
    prompt = [1 + i % 40 for i in range(30)]
    engine.add(request("a", prompt))
    assert tokens_of(run(engine)["a"]) == continuation(prompt, 8, backend.vocab_size)
    assert max(backend.batch_sizes) == 4


def test_max_tokens_ends_with_length() -> None:
    """A request ends with reason `length` at exactly max_tokens."""
    backend = FakeBackend(vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("a", [3], max_tokens=5))
    deltas = run(engine)["a"]
    assert len(tokens_of(deltas)) == 5
    assert deltas[-1].finish_reason == "length"


def test_end_token_ends_with_stop() -> None:
    """A sampled end-of-generation token ends the request at once and shows no text."""
    backend = FakeBackend(vocab_size=4)
    engine = engine_over(backend)
    engine.add(request("a", [3], max_tokens=60))
    deltas = run(engine)["a"]
    assert tokens_of(deltas)[-1] == END
    assert END not in tokens_of(deltas)[:-1]
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].stopped_by is None
    assert deltas[-1].text == ""


def test_context_limit_ends_with_length() -> None:
    """A sequence that fills the context ends with reason `length`."""
    backend = FakeBackend(num_cells=32, vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("a", [3] * 20, max_tokens=500))
    deltas = run(engine)["a"]
    assert len(tokens_of(deltas)) == 12
    assert deltas[-1].finish_reason == "length"


def test_full_cache_puts_back_the_youngest() -> None:
    """Requests that do not fit together all finish with the tokens that they get alone."""
    backend = FakeBackend(num_cells=64, num_slots=4, vocab_size=10_000)
    engine = engine_over(backend)
    prompts = {name: [ord(name)] * 5 for name in "abcd"}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt, max_tokens=40))
    deltas = run(engine)
    for name, prompt in prompts.items():
        assert tokens_of(deltas[name]) == continuation(prompt, 40, backend.vocab_size)
        assert deltas[name][-1].finish_reason == "length"


def test_out_of_cells_is_retried() -> None:
    """When the cache is fuller than the books say, the youngest waits and nobody fails."""
    backend = FakeBackend()
    engine = engine_over(backend)
    backend.failures = [None, OutOfCells, OutOfCells]
    for name in "abc":
        engine.add(request(name, [ord(name) % 50, 2]))
    deltas = run(engine)
    for name in "abc":
        assert tokens_of(deltas[name]) == continuation([ord(name) % 50, 2], 8, backend.vocab_size)


def test_only_the_guilty_fails() -> None:
    """A sequence that makes every batch fail gets the error; its neighbours get their tokens."""
    backend = FakeBackend(poison=49)
    engine = engine_over(backend)
    engine.add(request("good", [1, 2, 3]))
    engine.add(request("bad", [4, 49, 5]))
    engine.add(request("late", [6, 7]))
    deltas = run(engine)
    assert isinstance(deltas["bad"][-1].error, BatchError)
    for name, prompt in (("good", [1, 2, 3]), ("late", [6, 7])):
        expected = continuation(prompt, 8, backend.vocab_size)
        assert 49 not in expected
        assert tokens_of(deltas[name]) == expected


def test_failing_in_a_later_chunk_ends() -> None:
    """A sequence that makes its third chunk fail gets the error, once it was tried alone."""
    backend = FakeBackend(num_cells=200, capacity=8, poison=49)
    engine = engine_over(backend)
    engine.add(request("bad", [1] * 20 + [49] + [1] * 10))
    engine.add(request("good", [6, 7]))
    deltas = run(engine)
    assert isinstance(deltas["bad"][-1].error, BatchError)
    assert tokens_of(deltas["good"]) == continuation([6, 7], 8, backend.vocab_size)


@pytest.mark.parametrize("after", [0, 1, 2, 5])
def test_abort_frees_everything(after: int) -> None:
    """An aborted request frees slot, cells and sampler, whether it waits, reads or writes."""
    backend = FakeBackend(num_slots=1, capacity=4, vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("running", [1] * 6, max_tokens=20))
    engine.add(request("waiting", [2] * 6, max_tokens=20))
    for _ in range(after):
        engine.step()
    engine.abort("waiting")
    engine.abort("running")
    engine.abort("running")
    assert engine.is_idle
    engine.scheduler.check_integrity()
    assert backend.live_samplers == 0
    assert engine.scheduler.cells.pool.num_live == 0
    assert engine.step() == []


def test_stop_string_cuts_the_text() -> None:
    """The text ends before a stop string, even one that spans tokens, and the end tells which."""
    backend = FakeBackend(vocab_size=10_000)
    tokens = continuation([9], 12, backend.vocab_size)
    text = b"".join(backend.pieces[token] for token in tokens).decode()
    engine = engine_over(backend)
    engine.add(request("a", [9], max_tokens=12, stop=("nowhere", text[4:7])))
    deltas = run(engine)["a"]
    assert "".join(delta.text for delta in deltas) == text[: text.index(text[4:7])]
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].stopped_by == text[4:7]
    assert len(tokens_of(deltas)) == text.index(text[4:7]) + 3


def test_what_must_come_ends_at_a_stop_string() -> None:
    """Also where several tokens of it are known by then, which nobody sees."""
    backend = FakeBackend(vocab_size=10_000, num_cells=200, forces=1)
    tokens = continuation([9], 30, backend.vocab_size, forces=1)
    first = next(at for at, token in enumerate(tokens) if token % 7 == 6)
    text = b"".join(backend.pieces[token] for token in tokens).decode()
    stop = text[first + 2 : first + 5]
    engine = engine_over(backend)
    engine.add(request("a", [9], max_tokens=30, stop=(stop,)))
    engine.add(request("b", [9], max_tokens=first + 3))
    deltas = run(engine)
    assert "".join(delta.text for delta in deltas["a"]) == text[: text.index(stop)]
    assert deltas["a"][-1].stopped_by == stop
    assert "".join(delta.text for delta in deltas["b"]) == text[: first + 3]
    assert deltas["b"][-1].sampled_tokens == first + 3
    assert engine.snapshot.num_steps < first + 3


@pytest.mark.parametrize(("stop", "count"), [(slice(4, 7), 4), (slice(0, 2), 0), (None, 12)])
def test_scores_end_with_the_text(stop: slice | None, count: int) -> None:
    """A token of which the text has nothing has no score, also in events; the others have one."""
    backend = FakeBackend()
    tokens = continuation([9], 12, backend.vocab_size)
    text = b"".join(map(backend.pieces.__getitem__, tokens)).decode()
    assert len(text) == 12  # a character each
    engine = engine_over(backend)
    stops = (text[:1] + "!", text[stop]) if stop else (text[-1] + "!",)
    engine.add(request("a", [9], max_tokens=12, stop=stops, logprobs=0))
    deltas = run(engine)["a"]
    assert [s.token for delta in deltas for s in delta.logprobs] == tokens[:count]
    assert len("".join(delta.text for delta in deltas)) == count


def test_max_tokens_zero_scores_the_prompt() -> None:
    """With max_tokens 0 only the prompt is scored: one entry for each token but the first."""
    backend = FakeBackend(capacity=4, max_outputs=3)
    engine = engine_over(backend)
    prompt = [1, 2, 3, 4, 5, 6, 7, 8]
    engine.add(request("a", prompt, max_tokens=0, prompt_logprobs=1))
    (delta,) = run(engine)["a"]
    assert delta.token is None
    assert delta.prompt_logprobs is not None
    assert [score.token for score in delta.prompt_logprobs] == prompt[1:]


def test_too_long_is_refused() -> None:
    """A prompt that can never fit is refused by `check`, naming the field."""
    engine = engine_over(FakeBackend(num_cells=16))
    with pytest.raises(RequestError) as caught:
        engine.check(request("a", [1] * 16))
    assert caught.value.param == "prompt"
    engine.check(request("a", [1] * 15))


def test_too_long_is_told_before_the_ids() -> None:
    """Of a prompt that is much too long no token is looked at."""
    engine = engine_over(FakeBackend(num_cells=16))
    with pytest.raises(RequestError) as caught:
        engine.check(request("a", [10**6] * 5_000))
    assert caught.value.code == "context_length_exceeded"


def test_put_back_changes_neither_times_nor_hits() -> None:
    """A request's queue time ends when it first runs; what it computed itself is no hit."""
    backend = FakeBackend(vocab_size=10_000)
    backend.failures = [None, None, OutOfCells]
    engine = engine_over(backend)
    for name in "ab":
        engine.add(request(name, [ord(name)] * 5))
    deltas = run(engine)
    assert engine.snapshot.num_preempted == 1
    for name in "ab":
        last = deltas[name][-1]
        assert last.timings is not None
        assert last.timings.submitted <= last.timings.admitted < last.timings.first_token
        assert last.cached_tokens == 0
    assert engine.snapshot.stats.cached_tokens == 0


def test_scoring_counts_as_stall() -> None:
    """Rows whose logits take long to score are read in smaller parts beside a stream."""

    class SlowScoring(FakeBackend):
        now: float

        def logits(self, row: OutputRow, drawn_by: Any = None) -> np.ndarray:
            self.now += 0.25
            return super().logits(row, drawn_by)

    backend = SlowScoring(
        num_cells=600, num_slots=2, capacity=64, max_outputs=64, vocab_size=10_000
    )
    engine = Engine(backend, lambda: backend.now, max_stall=3)
    engine.add(request("stream", [1], max_tokens=100))
    engine.step()
    engine.step()
    engine.add(request("scored", [2] * 300, max_tokens=0, prompt_logprobs=0))
    seconds: list[float] = []
    while engine.snapshot.num_running + engine.snapshot.num_waiting > 1:
        started = backend.now
        engine.step()
        seconds.append(backend.now - started)
    assert len(seconds) > 10
    assert max(seconds[1:]) < 4  # the first part is a guess


def test_many_streams_take_turns() -> None:
    """Where a plain step is bounded, streams share the steps evenly."""
    backend = FakeBackend(num_cells=1_000, num_slots=7, capacity=64, mixed_rows=3, vocab_size=10**6)
    engine = engine_over(backend)
    for i in range(7):
        engine.add(request(f"r{i}", [1 + i, 9], max_tokens=40))
    counts = {delta.id: 1 for delta in engine.step()}
    assert len(counts) == 7
    while not engine.is_idle:
        for delta in engine.step():
            counts[delta.id] += 1
        assert backend.batch.size <= 3
        assert max(counts.values()) - min(counts.values()) <= 1
        engine.scheduler.check_integrity()
    assert set(counts.values()) == {40}
