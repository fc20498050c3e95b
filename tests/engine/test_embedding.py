"""Texts whose vectors are wanted share steps, and leave streams their speed."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.engine.driving import request, run
from tests.support.fakes import FakeBackend, continuation
from worker.account import Account
from worker.engine.backend import Batch, BatchError
from worker.engine.embedding import Embedded, EmbeddingLane, EmbeddingRequest, vectors_wanted
from worker.engine.engine import Engine
from worker.engine.order import AGE_S
from worker.errors import ContextLengthError, RequestError


class FakeEmbedder:
    """The row of a token is (its id, its position, the sum of its text's ids up to it)."""

    def __init__(self, pooling: str = "mean", *, rows: int = 16, splits: bool = True) -> None:
        self.pooling, self.splits = pooling, splits
        self.step_rows, self.max_inputs, self.max_length = rows, 4, 40
        self.batch = Batch(rows if splits else self.max_length)
        self.held: dict[int, list[int]] = {}
        self.steps: list[int] = []
        self.clock: Any = None
        self.fails = False

    def compute(self) -> np.ndarray:
        """Refuses what llama.cpp would end the process for."""
        batch = self.batch
        assert 0 < batch.size <= batch.capacity
        assert set(batch.outputs[: batch.size]) == {1}
        if self.fails:
            raise BatchError("planned")
        made: list[list[float]] = []
        places = zip(batch.tokens, batch.positions, batch.slots, strict=True)
        for token, position, slot in list(places)[: batch.size]:
            held = self.held.setdefault(int(slot), [])
            assert len(held) == position
            assert int(slot) < self.max_inputs
            held.append(int(token))
            made.append([float(token), float(position), float(sum(held))])
        self.steps.append(batch.size)
        if self.clock is not None:
            self.clock.now += 0.01 * batch.size
        return np.array(made, np.float32)

    def scores(self, slots: Any) -> np.ndarray:
        """The sum of the ids."""
        return np.array([[sum(self.held[slot])] for slot in slots], np.float32)

    def forget(self, first: int) -> None:
        """Slots from there on."""
        self.held = {slot: held for slot, held in self.held.items() if slot < first}


def wanted(name: str, *texts: list[int], per_token: bool = False) -> EmbeddingRequest:
    return msgspec.structs.replace(vectors_wanted(texts, "input", per_token=per_token), id=name)


def engine_with(embedder: FakeEmbedder, **backend: Any) -> tuple[Engine, FakeBackend]:
    writes = FakeBackend(**backend)
    embedder.clock = writes
    lane = EmbeddingLane(embedder, lambda: writes.now)
    return Engine(writes, lambda: writes.now, lane=lane), writes


def expected(text: list[int], pooling: str) -> np.ndarray:
    rows = np.stack([text, range(len(text)), np.cumsum(text)], axis=1).astype(np.float32)
    return {"mean": rows.mean(0), "cls": rows[0], "last": rows[-1], "none": rows,
            "rank": rows[-1][2:]}[pooling]  # fmt: skip


@pytest.mark.parametrize("splits", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "none", "rank"])
def test_each_text_gets_its_vector(pooling: str, splits: bool) -> None:
    """Whatever shares its steps, and however many those are."""
    random.seed(pooling)
    texts = [random.choices(range(1, 50), k=random.randint(1, 40)) for _ in range(60)]
    engine, _ = engine_with(FakeEmbedder(pooling, splits=splits))
    asked = [wanted(f"r{at}", *texts[at : at + 6]) for at in range(0, 60, 6)]
    for each in asked:
        engine.check(each)
        engine.add(each)
    deltas = run(engine)
    for at, each in enumerate(asked):
        (delta,) = deltas[each.id]
        assert isinstance(delta, Embedded)
        assert delta.is_last
        for text, vector in zip(texts[at * 6 :], delta.vectors, strict=False):
            np.testing.assert_allclose(vector, expected(text, pooling), rtol=1e-6)


def test_texts_share_steps() -> None:
    """As many as fit the rows of a step, and the texts of a context."""
    embedder = FakeEmbedder(rows=16)
    engine, _ = engine_with(embedder)
    engine.add(wanted("a", *[[1] * 4] * 8))
    run(engine)
    assert embedder.steps == [16, 16]
    embedder.steps.clear()
    engine.add(wanted("b", *[[1]] * 8))
    run(engine)
    assert embedder.steps == [4, 4]


def test_texts_of_similar_lengths_fill_steps() -> None:
    """Four of 24 to 36 tokens have the 128 rows of a step, not three of the longest."""
    lengths = [24, 27, 28, 31, 33, 36, 37, 40] * 8
    embedder = FakeEmbedder(rows=128)
    engine, _ = engine_with(embedder)
    engine.add(wanted("a", *[[1] * length for length in lengths]))
    run(engine)
    assert len(embedder.steps) == sum(lengths) // 128
    assert sorted(embedder.steps)[0] == 128


def test_nobody_waits_for_a_large_request() -> None:
    """Each request is the first one in turn."""
    engine, _ = engine_with(FakeEmbedder())
    engine.add(wanted("large", *[[1] * 16] * 50))
    engine.step()
    engine.add(wanted("small", [1, 2]))
    ended = [delta.id for _ in range(2) for delta in engine.step()]
    assert ended == ["small"]


def test_a_vector_for_each_token() -> None:
    """Where one request wants that, others get theirs as usual."""
    engine, _ = engine_with(FakeEmbedder("mean"))
    engine.add(wanted("tokens", [3, 4, 5], per_token=True))
    engine.add(wanted("text", [3, 4, 5]))
    deltas = run(engine)
    for name, pooling in (("tokens", "none"), ("text", "mean")):
        (delta,) = deltas[name]
        assert isinstance(delta, Embedded)
        np.testing.assert_allclose(delta.vectors[0], expected([3, 4, 5], pooling))


def test_streams_go_on() -> None:
    """They get what they would get alone, and at least three quarters of the time."""
    embedder = FakeEmbedder()
    engine, backend = engine_with(embedder, num_cells=256, vocab_size=5000)
    engine.add(request("stream", [7, 8], max_tokens=60))
    engine.add(wanted("vectors", *[[1] * 16] * 400))
    tokens: list[int] = []
    while engine.status_of("stream") is not None:
        tokens += [delta.token for delta in engine.step() if delta.token is not None]
    assert tokens == continuation([7, 8], 60, 5000)
    reading = 0.01 * sum(embedder.steps)
    assert 0 < reading < backend.now / 4
    assert not engine.is_idle
    run(engine)


def test_whoever_leaves_is_forgotten() -> None:
    """In the midst of a text too; who stays gets theirs."""
    engine, _ = engine_with(FakeEmbedder(rows=8))
    engine.add(wanted("gone", [1] * 40))
    engine.step()
    engine.add(wanted("stays", [3, 4]))
    engine.abort("gone")
    deltas = run(engine)
    assert list(deltas) == ["stays"]


def test_a_step_that_fails() -> None:
    """Ends the requests that had a part of it, with its error; the next one is answered."""
    embedder = FakeEmbedder()
    engine, _ = engine_with(embedder)
    engine.add(wanted("fails", [1] * 40))
    engine.step()
    embedder.fails = True
    deltas = run(engine)
    assert isinstance(deltas["fails"][0].error, BatchError)
    embedder.fails = False
    engine.add(wanted("next", [1, 2]))
    assert not run(engine)["next"][0].error


@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ([[1] * 41], ContextLengthError),
        ([[1], []], RequestError),
        ([[50]], RequestError),
        ([[-1]], RequestError),
        ([], RequestError),
    ],
)
def test_what_no_step_could_read(texts: list[list[int]], error: type[RequestError]) -> None:
    """It is refused before anything is queued, in a sentence that names the client's field."""
    engine, _ = engine_with(FakeEmbedder())
    with pytest.raises(error) as caught:
        engine.check(wanted("x", *texts))
    assert caught.value.param == "input"


def test_no_vectors_without_a_context_for_them() -> None:
    """A worker that only writes says so."""
    engine = Engine(FakeBackend(), lambda: 0.0)
    with pytest.raises(RequestError):
        engine.check(wanted("x", [1]))


def test_the_order_of_steps_is_kept() -> None:
    """Streams and texts take turns as long as both are there."""
    embedder = FakeEmbedder()
    engine, backend = engine_with(embedder, num_cells=256, vocab_size=5000)
    engine.add(request("stream", [7, 8], max_tokens=40))
    engine.add(wanted("vectors", *[[1] * 16] * 400))
    read: list[int] = []
    while engine.status_of("stream") is not None:
        before = len(embedder.steps)
        engine.step()
        read.append(len(embedder.steps) - before)
    assert (1, 1) not in set(pairwise(read))
    assert backend.batch_sizes


def first_to_end(*asked: EmbeddingRequest, wait: float = 0.0) -> list[str]:
    """The order in which they end; the clock stands by `wait` seconds later behind the first."""
    engine, writes = engine_with(FakeEmbedder(rows=16))
    for each in asked:
        engine.add(each)
        writes.now += wait
        wait = 0.0
    return [delta.id for deltas in _steps(engine) for delta in deltas]


def _steps(engine: Engine) -> list[list[Any]]:
    found: list[list[Any]] = []
    while not engine.is_idle:
        found.append(list(engine.step()))
    return found


def test_priorities_of_texts() -> None:
    """The lower number gets rows first; one that waited for long comes before it."""
    low = msgspec.structs.replace(wanted("low", [1] * 16), priority=3)
    high = msgspec.structs.replace(wanted("high", [1] * 16, [2] * 16), priority=0)
    assert first_to_end(low, high) == ["high", "low"]
    assert first_to_end(low, high, wait=4 * AGE_S) == ["low", "high"]


def test_accounts_of_texts() -> None:
    """Each gets its share of the rows, however many requests another one has."""
    few, many = Account("few", weight=1.0), Account("many")
    texts = [[1] * 16 for _ in range(4)]
    asked = [
        msgspec.structs.replace(wanted(f"m{number}", *texts), account=many) for number in range(6)
    ]
    mine = msgspec.structs.replace(wanted("f", *texts), account=few)
    order = first_to_end(*asked, mine)
    # After 4 steps of its own, and as many of the others.
    assert order.index("f") <= 1
    heavy = msgspec.structs.replace(mine, account=Account("few", weight=4.0))
    assert first_to_end(*asked, heavy)[0] == "f"
