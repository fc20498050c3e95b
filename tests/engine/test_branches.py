"""Where states cannot be cut: what prompts have in common is read twice at most."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engine.driving import KINDS, request, run
from tests.support.cases import for_each
from tests.support.fakes import FakeBackend
from worker.cache.disk import Disk
from worker.cache.store import Store
from worker.engine.engine import Engine
from worker.engine.kv.keeper import APART

REST_KINDS = [kind for kind in KINDS if kind]
TAILS = (1, 4, 5, 20, 35, 36, 100)
MOST = 0.8  # of the common tokens come from the cache


def tokens(seed: int, count: int) -> list[int]:
    draw = random.Random(seed)
    return [draw.randrange(1, 4_000) for _ in range(count)]


def prompts_of(shared: int, tail: int) -> list[list[int]]:
    """Five with a common beginning of so many tokens, and each its own end."""
    return [tokens(1, shared) + tokens(100 + number + 7 * tail, tail) for number in range(5)]


class Worker:
    """An engine with a store; others take its slots."""

    def __init__(self, kind: dict[str, Any], folder: Path | None = None, **options: Any) -> None:
        limits: dict[str, Any] = {
            "num_cells": 6_000, "num_slots": 4, "capacity": 128, "max_outputs": 64,
            "vocab_size": 5_000, "streams": True,
        }  # fmt: skip
        self.backend = FakeBackend(**limits | kind | options)
        disk = Disk(folder, 1 << 30, b"model", self.backend.row_bytes) if folder else None
        needs_rest = self.backend.shape.needs_rest
        self.store = Store(1 << 26, needs_rest=needs_rest, disk=disk)
        self.engine = Engine(self.backend, lambda: self.backend.now, store=self.store)

    def ask(self, *prompts: list[int], length: int = 4) -> list[int]:
        """At once; how much the cache gave of each."""
        for number, prompt in enumerate(prompts):
            self.engine.add(request(f"r{number}", prompt, length))
        deltas = run(self.engine)
        return [deltas[f"r{number}"][-1].cached_tokens for number in range(len(prompts))]

    def is_crowded(self) -> None:
        """Nothing of what was there is left in the cells."""
        self.ask(*(tokens(9_000 + number, 60) for number in range(self.backend.num_slots)))


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", REST_KINDS, ids=repr)
@for_each("shared", [40, 65, 300])
def test_one_after_another(kind: dict[str, Any], streams: bool, shared: int) -> None:
    """From the third one on, however long their own ends are."""
    for tail in TAILS:
        worker, found = Worker(kind, streams=streams), list[int]()
        for prompt in prompts_of(shared, tail):
            found += worker.ask(prompt)
            worker.is_crowded()
        assert min(found[2:]) >= MOST * shared, (tail, found)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", REST_KINDS, ids=repr)
def test_after_one_that_took_it_from_the_cells(kind: dict[str, Any], streams: bool) -> None:
    """What a window's cells gave the second one is there for the third, when they are gone."""
    for tail in TAILS:
        worker, prompts = Worker(kind, streams=streams), prompts_of(300, tail)
        worker.ask(prompts[0])
        worker.ask(prompts[1])
        worker.is_crowded()
        worker.is_crowded()
        assert worker.ask(prompts[2])[0] >= MOST * 300, tail


@pytest.mark.parametrize("kind", REST_KINDS, ids=repr)
@for_each("num_slots", [1, 2, 4])
def test_at_once(kind: dict[str, Any], num_slots: int) -> None:
    """From the second one on: those that wait are seen before the first one is read."""
    for tail in TAILS:
        found = Worker(kind, num_slots=num_slots).ask(*prompts_of(300, tail))
        assert min(found[1:]) >= MOST * 300, (tail, found)


@pytest.mark.parametrize("kind", REST_KINDS, ids=repr)
def test_while_others_write(kind: dict[str, Any]) -> None:
    """A sequence that still runs, past the place, tells that prompts branch there."""
    for tail in TAILS:
        worker, last = Worker(kind, num_slots=8), list[int]()
        for number, prompt in enumerate(prompts_of(300, tail)):
            worker.engine.add(request(f"r{number}", prompt, 200))
            for _ in range(6):
                worker.engine.step()
        found = [delta[-1].cached_tokens for _, delta in sorted(run(worker.engine).items())]
        last += found[2:]
        assert min(last) >= MOST * 300, (tail, found)


@pytest.mark.parametrize("kind", REST_KINDS, ids=repr)
def test_after_a_restart(kind: dict[str, Any], tmp_path: Path) -> None:
    """What was kept at a branch is found on disk, though its block goes on differently there."""
    for tail, shared in ((5, 100), (20, 300), (100, 300)):
        folder, prompts = tmp_path / f"{tail} {shared}", prompts_of(shared, tail)
        first = Worker(kind, folder)
        for prompt in prompts[:2]:
            first.ask(prompt)
        first.store.close(60)
        second = Worker(kind, folder)
        assert second.ask(prompts[2])[0] >= MOST * shared, (tail, shared)
        second.store.close(60)


def marked(backend: FakeBackend) -> Iterator[int]:
    """A number for each copy of a state, as they are made."""
    save = backend.save
    count = iter(range(10**6))
    copies: list[int] = []

    def counted(slot: int) -> Any:
        copies.append(next(count))
        return save(slot)

    backend.save = counted
    while True:
        yield len(copies)


def test_a_branch_is_copied_once() -> None:
    """Those that come after it copy their ends only; nothing is copied twice near each other."""
    worker = Worker({"cuts_tails": False})
    copies = marked(worker.backend)
    made: list[int] = []
    for prompt in prompts_of(300, 20):
        before = next(copies)
        worker.ask(prompt)
        made.append(next(copies) - before)
    # Before the prompt's end and at the answer's end; the branch; then only at the answer's end.
    assert made == [2, 3, 1, 1, 1]
    before = next(copies)
    worker.ask(tokens(1, 300 + APART // 2) + tokens(5, 9))
    assert next(copies) - before <= 2


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_sequence_that_another_one_went_on_from(kind: dict[str, Any]) -> None:
    """It is taken out as it ended, and put in elsewhere it serves both, as where it was."""
    worker, other = Worker(kind), Worker(kind)
    width = worker.backend.row_bytes
    prompt = tokens(1, 200)
    worker.ask(prompt)
    said = worker.engine.scheduler.cells.cached[-1].tokens[:203].copy()
    worker.ask([*said.tolist(), *tokens(2, 90)])
    worker.is_crowded()
    kept = worker.engine.take_out(said, b"", lambda rows, count: rows[: count * width])
    assert kept is not None
    assert kept.num_tokens == len(said)
    assert [rows.nbytes for rows in kept.parts] == [64 * width] * 3 + [11 * width]
    assert other.engine.put_in(kept) == len(said)
    again = [[*said.tolist()[:199], 7], [*said.tolist(), 7]]
    for asked in again:
        assert other.ask(asked) == worker.ask(asked)
        assert other.store.find(np.array(asked, np.int32)).num_tokens >= 196
