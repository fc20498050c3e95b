"""States of slots: out, in blocks, back in; on every kind of cache, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Generator

import numpy as np
import pytest

from tests.support.slots import (
    CASES,
    Case,
    go_on,
    kept,
    open_slots,
    random_tokens,
    read,
    write_case,
)
from worker import log
from worker.cache.state import Parts
from worker.llama.backend import LlamaBackend
from worker.llama.states.state import learn

LENGTH = 150
EMPTY = (-1, -1)


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:  # pyright: ignore[reportUnusedFunction]
    """llama.cpp's own lines would bury a failure."""
    log.configure("console", "error")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Each case's file and options in turn."""
    return write_case(tmp_path_factory.mktemp("case"), request.param)


@pytest.fixture(scope="module")
def backend(case: Case) -> Generator[LlamaBackend]:
    """A backend of this case, in streams."""
    path, options = case
    with open_slots(path, **options) as backend:
        yield backend


@pytest.fixture(autouse=True)
def _empty(backend: LlamaBackend) -> None:  # pyright: ignore[reportUnusedFunction]
    """Every test begins in streams, with empty slots."""
    backend.arrange(unified=False, slots=())
    assert not backend.unified
    assert all(backend.context.span(slot) == EMPTY for slot in range(4))


def same(left: tuple[Parts, np.ndarray | None], right: tuple[Parts, np.ndarray | None]) -> bool:
    """Whether two kept states are equal byte for byte."""
    counts = [[count for _, count in parts] for parts, _ in (left, right)]
    rows = [np.concatenate([packed for packed, _ in parts]) for parts, _ in (left, right)]
    rests = [np.empty(0) if rest is None else rest for _, rest in (left, right)]
    is_same = np.array_equal(rows[0], rows[1]) and np.array_equal(rests[0], rests[1])
    return is_same and counts[0] == counts[1]


def test_another_slot_goes_on(backend: LlamaBackend) -> None:
    """A state in blocks, restored into another slot while the first one went on."""
    read(backend, 2, random_tokens(1, LENGTH))
    state = kept(backend.save(2))
    wanted = go_on(backend, 2, LENGTH)
    read(backend, 1, random_tokens(2, 40))  # what a slot holds is replaced
    for slot in (1, 2, 0):
        assert backend.restore(slot, *state)
        assert backend.context.span(slot)[1] == LENGTH - 1
        assert np.array_equal(go_on(backend, slot, LENGTH), wanted)


def test_rows_of_fewer_tokens(backend: LlamaBackend) -> None:
    """The first of packed rows are those that a copy of as many tokens has."""
    read(backend, 2, random_tokens(1, LENGTH))
    state, form = backend.save(2), backend.state_form
    assert state is not None
    assert form is not None
    for count in (1, 37, 64):
        few = form.shorten(state.rows(64, 128), count)
        assert np.array_equal(few, state.rows(64, 64 + count))


def test_another_backend_goes_on(case: Case, backend: LlamaBackend) -> None:
    """A state is restored by a process that has seen none, with other slots and cells."""
    read(backend, 3, random_tokens(1, LENGTH))
    state = kept(backend.save(3))
    wanted = go_on(backend, 3, LENGTH)
    path, options = case
    for layout in ({"num_cells": 1536, "num_slots": 3}, {"num_slots": 1}, {"unified": True}):
        with open_slots(path, **options, **layout) as other:
            assert other.restore(0, *state)
            assert same(kept(other.save(0)), state)
            assert other.state_form == backend.state_form
            assert backend.state_form is not None
            found = go_on(other, 0, LENGTH)
            if not other.unified:
                assert np.array_equal(found, wanted)
            assert np.array_equal(found.argmax(1), wanted.argmax(1))


def test_a_beginning(backend: LlamaBackend) -> None:
    """Any beginning of rows is a state of its own, where there is no rest."""
    if backend.shape.needs_rest:
        return
    read(backend, 0, random_tokens(1, LENGTH))
    parts, _ = kept(backend.save(0))
    assert backend.drop(0, 77)
    wanted = go_on(backend, 0, 77)
    assert backend.restore(3, [parts[0], (parts[1][0], 13)], None)
    assert np.array_equal(go_on(backend, 3, 77), wanted)


def test_blocks_of_two_conversations(backend: LlamaBackend) -> None:
    """Rows of a common beginning, taken from another sequence, are as good as its own."""
    first, second = random_tokens(1, LENGTH), random_tokens(2, LENGTH)
    second[:128] = first[:128]
    read(backend, 0, first)
    parts, _ = kept(backend.save(0))
    read(backend, 1, second)
    tail, rest = kept(backend.save(1))
    wanted = go_on(backend, 1, LENGTH)
    assert backend.restore(2, [*parts[:2], *tail[2:]], rest)
    assert np.array_equal(go_on(backend, 2, LENGTH), wanted)


@pytest.mark.parametrize("unified", [False, True], ids=["streams", "unified"])
def test_share(backend: LlamaBackend, unified: bool) -> None:
    """A slot shares all that another holds, and both go on."""
    backend.arrange(unified=unified, slots=())
    read(backend, 1, random_tokens(1, LENGTH))
    backend.share(1, 2, LENGTH)
    state = kept(backend.save(1))
    assert same(kept(backend.save(2)), state)
    found = [go_on(backend, slot, LENGTH) for slot in (2, 1)]
    assert np.array_equal(found[0].argmax(1), found[1].argmax(1))
    if not unified:
        assert np.array_equal(found[0], found[1])
    if not backend.shape.needs_rest:
        backend.drop(3)
        backend.share(1, 3, 30)
        assert backend.context.span(3) == (0, 29)


def test_share_of_what_cannot_be_cut(backend: LlamaBackend) -> None:
    """More than there is, or less than a state that cannot be cut: the target stays empty."""
    read(backend, 1, random_tokens(1, 40))
    for stop in (41, 20) if backend.shape.needs_rest else (41,):
        assert not backend.share(1, 2, stop)
        assert backend.context.span(2) == EMPTY
    assert backend.context.span(1)[1] == 39


def test_there_and_back(backend: LlamaBackend) -> None:
    """Living sequences survive changes of the layout, all others are gone."""
    lengths = {0: 30, 1: LENGTH, 3: 200}
    for slot, length in lengths.items():
        read(backend, slot, random_tokens(slot, length))
    states = {slot: kept(backend.save(slot)) for slot in lengths}
    wanted = {slot: go_on(backend, slot, length) for slot, length in lengths.items()}
    for slot in lengths:
        assert backend.restore(slot, *states[slot])
    read(backend, 2, random_tokens(9, 20))
    for unified in (True, False):
        backend.arrange(unified=unified, slots=tuple(lengths))
        assert backend.unified == unified
        assert backend.context.span(2) == EMPTY
        assert all(same(kept(backend.save(slot)), states[slot]) for slot in lengths)
    for slot, length in lengths.items():
        assert np.array_equal(go_on(backend, slot, length), wanted[slot])
    backend.arrange(unified=True, slots=(1,))
    assert [backend.context.span(slot)[1] for slot in range(4)] == [-1, LENGTH + 75, -1, -1]


def test_out_of_order(backend: LlamaBackend) -> None:
    """In the unified layout cells are taken where they are free, in any order."""
    backend.arrange(unified=True, slots=())
    for slot in (0, 1, 2):
        read(backend, slot, random_tokens(slot, 60))
    backend.drop(0)
    backend.drop(2)
    tokens = random_tokens(5, LENGTH)
    for at in range(0, LENGTH, 50):  # another sequence lies between
        read(backend, 3, tokens[at : at + 50], at)
        read(backend, 1, random_tokens(6, 7), 60 + 7 * (at // 50))
        backend.drop(0)
    state = kept(backend.save(3))
    backend.arrange(unified=False, slots=(3,))
    assert same(kept(backend.save(3)), state)
    wanted = go_on(backend, 3, LENGTH)
    assert backend.restore(0, *state)
    assert np.array_equal(go_on(backend, 0, LENGTH), wanted)


def test_nothing_to_save(backend: LlamaBackend) -> None:
    """An empty slot has no state."""
    assert backend.save(0) is None


def damaged(
    parts: Parts, rest: np.ndarray | None, num_cells: int
) -> Generator[tuple[str, Parts, np.ndarray | None]]:
    """States that must be refused."""
    (rows, count), *others = parts
    yield "no rows", [], rest
    yield "no tokens", [(rows, 0), *others], rest
    yield "a negative count", [(rows, -1), *others], rest
    if len(rows):
        yield "truncated", [(rows[:-1], count), *others], rest
        yield "too many", [(rows, count + 1), *others], rest
        yield "another type", [(rows.view(np.int8), count), *others], rest
        yield "another shape", [(rows[None], count), *others], rest
    yield "more than there are cells", parts * (num_cells // LENGTH + 1), rest
    if rest is None:
        yield "a rest too much", parts, np.zeros(10, np.uint8)
        return
    yield "no rest", parts, None
    yield "an empty rest", parts, np.empty(0, np.uint8)
    yield "a truncated rest", parts, rest[:-1]
    yield "a longer rest", parts, np.append(rest, np.uint8(0))
    yield "the rest of more tokens", parts[:-1], rest
    yield "twice the rest", parts, np.concatenate([rest, rest])
    for bit in range(8 * 16):
        flipped = rest.copy()
        flipped[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit} of the rest", parts, flipped


def test_damage(backend: LlamaBackend) -> None:
    """What cannot be a state is refused, the slot is empty, and the next state is restored."""
    read(backend, 2, random_tokens(1, LENGTH))
    state = kept(backend.save(2))
    wanted = go_on(backend, 2, LENGTH)
    for name, parts, rest in damaged(*state, backend.context.slot_cells):
        read(backend, 1, random_tokens(2, 10))
        assert not backend.restore(1, parts, rest), name
        assert backend.context.span(1) == EMPTY, name
    assert backend.restore(1, *state)
    assert np.array_equal(go_on(backend, 1, LENGTH), wanted)


def test_random_damage(backend: LlamaBackend) -> None:
    """Bytes changed at random are refused or are numbers; nothing else suffers."""
    draw = random.Random(7)
    read(backend, 0, random_tokens(3, 50))
    state = kept(backend.save(0))
    wanted = go_on(backend, 0, 50)
    parts, rest = state
    for _ in range(60):
        place = draw.randrange(len(parts))
        rows = parts[place][0].copy()
        changed = None if rest is None else rest.copy()
        for data in (rows, changed):
            if data is not None and len(data):
                for _ in range(draw.randint(1, 4)):
                    data[draw.randrange(len(data))] = draw.randrange(256)
        other = [*parts[:place], (rows, parts[place][1]), *parts[place + 1 :]]
        if backend.restore(1, other, changed):
            read(backend, 1, random_tokens(4, 3), 50)
    assert backend.restore(0, *state)
    assert np.array_equal(go_on(backend, 0, 50), wanted)


def test_unknown_bytes() -> None:
    """No layout is learned from what is no state."""
    for blob in (np.empty(0, np.uint8), np.zeros(100, np.uint8), np.full(9, 255, np.uint8)):
        assert (
            learn(blob, vocab_size=9, has_cells=True, has_window=False, is_recurrent=False) is None
        )
