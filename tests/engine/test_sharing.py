"""Prefixes: computed once, shared while they are needed, kept until their cells are."""

from __future__ import annotations

from typing import Any

from tests.engine.driving import engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation

PREFIX = [1 + i % 40 for i in range(20)]


def test_a_cached_prefix_is_not_computed_again() -> None:
    """A prompt that begins like an ended sequence computes only what differs."""
    backend = FakeBackend(num_cells=200)
    engine = engine_over(backend)
    engine.add(request("a", [*PREFIX, 41]))
    run(engine)
    before = backend.rows_computed
    engine.add(request("b", [*PREFIX, 42, 43], max_tokens=1))
    deltas = run(engine)["b"]
    assert backend.rows_computed - before == 2
    assert deltas[-1].cached_tokens == len(PREFIX)
    assert tokens_of(deltas) == continuation([*PREFIX, 42, 43], 1, backend.vocab_size)


def test_the_same_prompt_again_computes_nothing() -> None:
    """The logits behind an identical prompt are kept, and give the first token."""
    backend = FakeBackend(num_cells=200)
    engine = engine_over(backend)
    engine.add(request("a", PREFIX, max_tokens=1))
    run(engine)
    engine.add(request("b", PREFIX, max_tokens=1))
    deltas = run(engine)["b"]
    assert backend.rows_computed == len(PREFIX)
    assert deltas[-1].cached_tokens == len(PREFIX)
    assert tokens_of(deltas) == continuation(PREFIX, 1, backend.vocab_size)


def test_streams_go_on_where_a_prompt_is_known() -> None:
    """Its first token comes with their next ones, and they wait for nothing more."""
    backend = FakeBackend(num_cells=400, num_slots=4, vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("a", PREFIX, max_tokens=1))
    run(engine)
    engine.add(request("stream", [50, 51], max_tokens=9))
    engine.step()
    engine.add(request("again", PREFIX, max_tokens=3))
    told = [delta.id for delta in engine.step()]
    assert told == ["again", "stream", "again"]
    deltas = run(engine)
    assert len(tokens_of(deltas["again"])) == 1
    assert len(tokens_of(deltas["stream"])) == 7


def test_what_is_kept_of_prompts_is_bounded() -> None:
    """The newest ones; none where what follows is asked of all rows."""
    backend = FakeBackend(num_cells=4_000, num_slots=8, vocab_size=1_000)
    engine = engine_over(backend)

    def read(prompt: list[int], **more: Any) -> int:
        before = backend.rows_computed
        engine.add(request("a", prompt, max_tokens=1, **more))
        run(engine)
        return backend.rows_computed - before

    prompts = [[*PREFIX, number] for number in range(50, 59)]
    assert [read(prompt) for prompt in prompts] == [21, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [read(prompt) for prompt in prompts[1:]] == [0] * 8
    assert read(prompts[0]) == 1
    assert read(prompts[0], prompt_logprobs=0) == 21


def test_together_means_once() -> None:
    """Requests that arrive together with the same prefix compute it once."""
    backend = FakeBackend(num_cells=400, num_slots=8, capacity=8)
    engine = engine_over(backend)
    for i in range(6):
        engine.add(request(f"r{i}", [*PREFIX, 30 + i], max_tokens=1))
    deltas = run(engine)
    assert backend.rows_computed == len(PREFIX) + 6
    for i in range(6):
        expected = continuation([*PREFIX, 30 + i], 1, backend.vocab_size)
        assert tokens_of(deltas[f"r{i}"]) == expected


def test_copies_share_their_prompt() -> None:
    """n continuations of one prompt hold its cells once."""
    backend = FakeBackend(num_cells=64, num_slots=4, vocab_size=10_000)
    engine = engine_over(backend)
    prompt = [1 + i % 40 for i in range(40)]
    for i in range(4):
        engine.add(request(f"r{i}", prompt, max_tokens=5))
    deltas = run(engine)
    assert all(len(tokens_of(deltas[f"r{i}"])) == 5 for i in range(4))
    assert backend.rows_computed == 40 + 4 * 4


def test_a_leader_that_leaves_strands_nobody() -> None:
    """Who followed a cancelled sequence goes on alone from what was computed."""
    backend = FakeBackend(num_cells=200, capacity=4)
    engine = engine_over(backend)
    engine.add(request("a", [*PREFIX, 41]))
    engine.add(request("b", [*PREFIX, 42]))
    engine.step()
    engine.step()
    engine.abort("a")
    assert tokens_of(run(engine)["b"]) == continuation([*PREFIX, 42], 8, backend.vocab_size)
    assert backend.rows_computed <= len(PREFIX) + 1 + 8


def test_least_recently_used_goes_first() -> None:
    """Cells are taken from the ended sequence that was of use longest ago."""
    backend = FakeBackend(num_cells=60, num_slots=8, vocab_size=10_000)
    engine = engine_over(backend)
    prompts = {name: [ord(name) + i for i in range(15)] for name in "abc"}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt, max_tokens=1))
        run(engine)
    engine.add(request("a2", prompts["a"], max_tokens=1))
    run(engine)  # a is the newest now, b the oldest
    engine.add(request("d", [500 + i for i in range(25)], max_tokens=1))
    run(engine)
    held = {slot.tokens[0] for slot in engine.scheduler.cells.cached}
    assert ord("b") not in held
    assert {ord("a"), ord("c")} <= held


def test_whole_states_only_where_tails_cannot_be_cut() -> None:
    """With recurrent state a prompt reuses a sequence that it extends, and nothing less."""
    backend = FakeBackend(num_cells=200, cuts_tails=False, vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("a", PREFIX, max_tokens=3))
    first = tokens_of(run(engine)["a"])
    before = backend.rows_computed
    longer = [*PREFIX, *first, 7]
    engine.add(request("b", longer, max_tokens=1))
    assert tokens_of(run(engine)["b"]) == continuation(longer, 1, backend.vocab_size)
    assert backend.rows_computed - before == 2  # the last sampled token and the new one
    before = backend.rows_computed
    engine.add(request("c", [*PREFIX, 9], max_tokens=1))
    assert tokens_of(run(engine)["c"]) == continuation([*PREFIX, 9], 1, backend.vocab_size)
    assert backend.rows_computed - before == len(PREFIX) + 1


def test_scoring_computes_every_row() -> None:
    """A prompt whose tokens are scored shares nothing: all its logits are wanted."""
    backend = FakeBackend(num_cells=200)
    engine = engine_over(backend)
    engine.add(request("a", PREFIX))
    run(engine)
    before = backend.rows_computed
    engine.add(request("b", PREFIX, max_tokens=0, prompt_logprobs=0))
    (delta,) = run(engine)["b"]
    assert backend.rows_computed - before == len(PREFIX)
    assert delta.prompt_logprobs is not None
    assert len(delta.prompt_logprobs) == len(PREFIX) - 1


def test_what_is_shared_is_shared_at_once() -> None:
    """A prefix counts for whoever is admitted, even if the next one needs the slot that held it."""
    backend = FakeBackend(num_cells=200, num_slots=2)
    engine = engine_over(backend)
    engine.add(request("a", [*PREFIX, 41], max_tokens=1))
    run(engine)
    engine.add(request("b", [*PREFIX, 42], max_tokens=1))
    engine.add(request("c", [30, 31], max_tokens=1))
    deltas = run(engine)
    assert deltas["b"][-1].cached_tokens == len(PREFIX)
    assert tokens_of(deltas["b"]) == continuation([*PREFIX, 42], 1, backend.vocab_size)


def test_windows_that_are_gone_are_computed_again() -> None:
    """A prompt that ends behind a cached sequence's window gets the tokens that it gets alone."""
    backend = FakeBackend(num_cells=200, window=4, vocab_size=10_000)
    engine = engine_over(backend)
    engine.add(request("a", PREFIX, max_tokens=8))
    run(engine)
    engine.add(request("b", [*PREFIX[:10], 7], max_tokens=8))
    deltas = run(engine)["b"]
    assert deltas[-1].cached_tokens == 0
    assert tokens_of(deltas) == continuation([*PREFIX[:10], 7], 8, 10_000, memory=4)
