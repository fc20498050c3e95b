"""Prompts with several keys: none shares a step with another, and all have their turns."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest

from tests.engine.driving import run
from tests.support.fakes import FakeBackend, continuation
from worker.cache.store import Store
from worker.engine.engine import Engine
from worker.engine.plan import Turns
from worker.engine.request import GenerationParams, Prompt, Request


def test_each_after_all_others() -> None:
    """A turn of one of three keys takes half of what one may wait; one key alone is never asked."""
    turns = Turns(10.0)
    keys = [b"a", b"b", b"c"]
    order = [turns.next(keys, float(now)) for now in range(30)]
    assert [(key, len(list(steps))) for key, steps in groupby(order)] == [
        (b"a", 5), (b"b", 5), (b"c", 5), (b"a", 5), (b"b", 5), (b"c", 5),
    ]  # fmt: skip
    assert {turns.next([b"b"], float(now)) for now in range(30, 60)} == {b"b"}


def test_who_comes_and_goes() -> None:
    """A key that ends leaves its turn to the next one, and a new one waits for all others."""
    turns = Turns(1.0)
    assert turns.next([b"a", b"b"], 0.0) == b"a"
    assert turns.next([b"b", b"c"], 0.1) == b"b"
    assert turns.next([b"c", b"b", b"a"], 0.3) == b"b"
    assert turns.next([b"c", b"b", b"a"], 0.6) == b"c"
    assert turns.next([b"c", b"b", b"a"], 1.1) == b"a"


@pytest.mark.parametrize(
    "steps", [[1.0, 2.0, 3.0], [0.1, 0.7, 2.9], [3.0] * 4, [1.0] * 8, [9.0] * 3]
)
def test_the_wait(steps: list[float]) -> None:
    """A key waits for the turns of the others for 10 seconds at most, or for one step of each where
    these take longer."""
    turns, keys, now = Turns(10.0), [bytes([place]) for place in range(len(steps))], 0.0
    left = dict.fromkeys(keys, 0.0)
    for _ in range(500):
        key = turns.next(keys, now)
        others = sum(steps) - steps[keys.index(key)]
        assert now - left[key] <= max(10.0, others) + 1e-9
        now += steps[keys.index(key)]
        left[key] = now


def test_nobody_waits_long() -> None:
    """Streams of three keys wait for as long as is allowed for the turns of the others, and as long
    as those of one key may for a step of their own, also while prompts are read. Each says what it
    says alone."""
    backend = FakeBackend(
        num_cells=2_000, num_slots=8, capacity=64, vocab_size=5_000, mixed_rows=64
    )
    backend.per_row, stall = 0.2, 8.0
    engine = Engine(backend, lambda: backend.now, max_stall=stall)
    requests = [
        Request(
            id=f"{key.decode() or 'base'} {number}",
            prompt=Prompt(tuple(range(1, 4 + 150 * number)), key=key),
            params=GenerationParams(max_tokens=60),
        )
        for number in range(2)
        for key in (b"", b"a", b"b")
    ]
    times: dict[str, list[float]] = {}
    tokens: dict[str, list[int]] = {}
    for place, request in enumerate(requests):
        engine.add(request)
        for _ in range(4 * place):
            for delta in engine.step():
                times.setdefault(delta.id, []).append(backend.now)
                tokens.setdefault(delta.id, []).append(delta.token or 0)
    while not engine.is_idle:
        for delta in engine.step():
            times.setdefault(delta.id, []).append(backend.now)
            tokens.setdefault(delta.id, []).append(delta.token or 0)
        engine.scheduler.check_integrity()
    for request in requests:
        prompt, key = list(request.prompt.tokens), request.prompt.key
        expected = continuation(prompt, 60, 5_000, key=key)
        assert tokens[request.id] == expected
    gaps = [b - a for each in times.values() for a, b in pairwise(each)]
    assert max(gaps) <= 2 * stall


def test_what_is_known_of_another_key() -> None:
    """The cells of a prompt are of no use to the same prompt with another key, those of its own
    are."""
    backend = FakeBackend(num_cells=400, num_slots=4, capacity=64, vocab_size=5_000)
    engine = Engine(backend, lambda: backend.now)
    prompt = tuple(range(1, 60))
    found: list[int] = []
    for number, key in enumerate((b"", b"a", b"b", b"a", b"")):
        params = GenerationParams(max_tokens=4)
        engine.add(Request(id=str(number), prompt=Prompt(prompt, key=key), params=params))
        found.append(run(engine)[str(number)][-1].cached_tokens)
    assert found == [0, 0, 0, 59, 59]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kept", [False, True])
def test_what_begins_without_its_key(streams: bool, kept: bool) -> None:
    """The tokens before that are the model's own, and known to all prompts whose are too."""
    backend = FakeBackend(
        num_cells=600, num_slots=6, capacity=64, vocab_size=5_000, streams=streams
    )
    store = Store(10**6, needs_rest=False) if kept else None
    engine = Engine(backend, lambda: backend.now, store=store)
    tokens = tuple(range(1, 80))
    found: list[int] = []
    for number, (key, begin) in enumerate(
        [(b"", 0), (b"a", 40), (b"a", 40), (b"b", 30), (b"a", 50), (b"a", 0), (b"", 0)]
    ):
        prompt = Prompt(tokens, key=key, begin=begin)
        engine.add(Request(id=str(number), prompt=prompt, params=GenerationParams(max_tokens=4)))
        deltas = run(engine)[str(number)]
        found.append(deltas[-1].cached_tokens)
        told = key + bytes([begin][:begin])
        expected = continuation(list(tokens), 4, 5_000, key=told)
        assert [delta.token for delta in deltas if delta.token is not None] == expected
    assert found == [0, 40, 79, 30, 50, 0, 79]
