"""Random conversations, each of which outlives the workers that compute it."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.driving import KINDS, check_books
from tests.support import accidents
from tests.support.accidents import Damage, cut, flipped, zeroed
from tests.support.disks import flush
from tests.support.fakes import FakeBackend, continuation
from worker.cache.disk import Disk
from worker.cache.folder import room_of
from worker.cache.store import Store
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.kv import keeper
from worker.engine.request import GenerationParams, Prompt, Request

BIG = 1 << 30
PAGE = 4096


def words(seed: int, count: int) -> list[int]:
    """What somebody says."""
    return random.Random(seed).choices(range(1, 50), k=count)


# The first one is empty. Others end within a block of 64 tokens, and with one.
SYSTEM_PROMPTS = [words(100, count) for count in (0, 40, 128, 150)]


class Turn(NamedTuple):
    """Somebody says something.

    of      the system prompt that it begins with, or the earlier turn that it goes on from
    kept    how many tokens of that remain; None: all, and the answer too
    twin    the first token is another one, and the same ones follow
    more    (seed, number of tokens) of what is said
    length  max_tokens
    marked  whether the places are named where others may branch off
    steps   of all workers, before anything else happens; None: until nobody has anything to do
    """

    of: int
    kept: int | None
    twin: bool
    more: tuple[int, int]
    length: int
    marked: bool
    steps: int | None


class Event(NamedTuple):
    """Something else happens."""

    what: str
    number: int


def went_on(of: int, more: tuple[int, int], steps: int | None) -> Turn:
    """A turn that goes on from all of an earlier one."""
    return Turn(of, None, twin=False, more=more, length=20, marked=False, steps=steps)


turns = st.builds(
    Turn,
    of=st.integers(0, 30),
    kept=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 200)),
    twin=st.sampled_from([False, False, True]),
    more=st.tuples(st.integers(0, 5), st.integers(1, 70)),
    length=st.integers(1, 40),
    marked=st.booleans(),
    steps=st.one_of(st.none(), st.integers(0, 12)),
)
events = st.builds(
    Event,
    what=st.sampled_from(
        ["kill"] * 5 + ["full"] * 4 + ["restart", "other", "flip", "cut", "remove", "empty"]
        + ["cancel", "cells", "failure"]
    ),
    number=st.integers(0, 10_000),
)  # fmt: skip
scripts = st.lists(st.one_of(turns, turns, events), min_size=5, max_size=24)


class Setting(NamedTuple):
    """What all workers of an example have in common.

    place   the folder that they share
    memory  bytes of host memory; 0: there is no store
    room    bytes that the folder may hold; 0: nothing is written
    """

    backend: dict[str, Any]
    place: Path
    memory: int
    room: int
    max_stall: float = 30.0
    drafting: bool = False


class Worker:
    """An engine with its store, and what its clients have got from it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.backend = FakeBackend(**setting.backend)
        self.disk: Disk | None = None
        self.store: Store | None = None
        if setting.memory:
            if setting.room:
                identity = b"model"
                self.disk = Disk(setting.place, setting.room, identity, self.backend.row_bytes)
                flush(self.disk)
            self.store = Store(
                setting.memory, needs_rest=self.backend.shape.needs_rest, disk=self.disk
            )
        self.engine = Engine(
            self.backend,
            lambda: self.backend.now,
            store=self.store,
            max_stall=setting.max_stall,
            drafting=Drafting(setting.drafting),
        )
        self.running: dict[str, tuple[Request, list[int]]] = {}
        self.cached: dict[str, int] = {}

    def add(self, request: Request) -> None:
        """Ask for an answer."""
        self.engine.check(request)
        self.engine.add(request)
        self.running[request.id] = (request, [])

    def cancel(self, number: int) -> None:
        """A client leaves."""
        if self.running:
            name = sorted(self.running)[number % len(self.running)]
            self.engine.abort(name)
            self.check_beginning(*self.running.pop(name))

    def step(self) -> None:
        """One step, with all books checked, and each answer that ends in it."""
        for delta in self.engine.step():
            request, tokens = self.running[delta.id]
            if delta.token is not None:
                tokens.append(delta.token)
            if delta.is_last:
                assert 0 <= delta.cached_tokens <= len(request.prompt.tokens)
                self.cached[delta.id] = delta.cached_tokens
                self.check_beginning(request, tokens)
                assert delta.error is not None or tokens == self.answer(request)
                del self.running[delta.id]
        if self.disk is not None:
            flush(self.disk)
        check_books(self.engine, self.backend)
        if self.store is not None:
            self.store.check_integrity()
            assert self.store.stats.memory_bytes <= self.setting.memory

    def finish(self) -> None:
        """Step until nobody has anything to do."""
        for _ in range(3_000):
            if self.engine.is_idle:
                break
            self.step()
        assert not self.running, "somebody starves"
        assert self.backend.live_samplers == 0
        assert self.engine.scheduler.cells.pool.num_live == 0

    def answer(self, request: Request) -> list[int]:
        """What the request gets alone."""
        backend, prompt = self.backend, list(request.prompt.tokens)
        assert request.params.max_tokens is not None
        room = min(request.params.max_tokens, backend.max_length - len(prompt))
        return continuation(prompt, room, backend.vocab_size, backend.memory)

    def check_beginning(self, request: Request, tokens: list[int]) -> None:
        """So far the tokens are those that the request gets alone."""
        assert tokens == self.answer(request)[: len(tokens)]

    def vanish(self) -> None:
        """Killed: nothing is written any more."""
        if self.disk is not None:
            self.disk.close(0, [])

    def close(self) -> None:
        """Stopped: what is not on disk is written."""
        if self.store is not None:
            self.store.close(10)


class Conversations:
    """One or two workers, whose places others take, and all that was said."""

    def __init__(self, setting: Setting, num_workers: int) -> None:
        self.setting = setting
        self.workers = [Worker(setting) for _ in range(num_workers)]
        self.texts: list[list[int]] = list(SYSTEM_PROMPTS)

    def happens(self, item: Turn | Event, number: int) -> None:
        """A turn, or something else."""
        if isinstance(item, Turn):
            self.say(item, f"r{number}")
        else:
            if item.what in ("kill", "full"):  # while somebody waits for an answer
                more = (item.number % 5, 1 + item.number % 70)
                self.say(went_on(item.number, more, steps=0), f"r{number}")
            self.befall(item.what, item.number)
        self.check_room()

    def say(self, turn: Turn, name: str) -> None:
        """Add a turn to the first worker."""
        worker = self.workers[0]
        before = self.texts[turn.of % len(self.texts)][: turn.kept]
        if turn.twin:
            before = [7, *before[1:]]
        prompt = [*before, *words(*turn.more)][: worker.backend.max_length - 1]
        marks = [40, 128, len(before)] if turn.marked else []
        request = Request(
            id=name,
            prompt=Prompt(
                tuple(prompt), tuple(sorted({mark for mark in marks if 0 < mark < len(prompt)}))
            ),
            params=GenerationParams(max_tokens=turn.length),
        )
        self.texts.append([*prompt, *worker.answer(request)])
        worker.add(request)
        for _ in range(turn.steps or 0):
            for each in self.workers:
                each.step()
        if turn.steps is None:
            self.finish()

    def finish(self) -> None:
        """All answers are there."""
        for worker in self.workers:
            worker.finish()

    def befall(self, what: str, number: int) -> None:
        """What happens to the first worker, or to the folder."""
        worker, place = self.workers[0], self.setting.place
        match what:
            case "kill":
                self.kill(number)
            case "full":
                with accidents.full_disk(number % 3):
                    self.steps(number // 3 % 30)
            case "restart":
                worker.close()
                self.replace()
            case "other":
                self.workers.reverse()
            case "flip":
                accidents.damage(place, number, flipped)
            case "cut":
                accidents.damage(place, number, cut)
            case "remove":
                accidents.remove_some(place, number)
            case "empty":
                accidents.remove_folders(place)
            case "cancel":
                worker.cancel(number)
            case "cells":
                worker.backend.failures.append(OutOfCells)
            case _:
                worker.backend.failures.append(BatchError)

    def kill(self, number: int) -> None:
        """The first worker is killed in some steps from now, perhaps while it writes a file."""
        ways: list[tuple[Damage, bool]] = [(cut, False), (cut, True), (zeroed, True)]
        how, named = ways[number % 3]
        with accidents.dying_writer(number // 3 % 3, how, number, named=named):
            self.steps(number // 9 % 30)
        self.workers[0].vanish()
        self.replace()

    def steps(self, count: int) -> None:
        """The first worker goes on for so many steps."""
        for _ in range(count):
            self.workers[0].step()

    def replace(self) -> None:
        """A new worker takes the first one's place; what had no answer yet is asked again."""
        lost = self.workers[0].running
        self.workers[0] = Worker(self.setting)
        for request, _ in lost.values():
            self.workers[0].add(request)

    def check_room(self) -> None:
        """The folder is not larger than allowed; two workers pass it until they look again."""
        if self.setting.room and len(self.workers) == 1:
            sizes = [path.stat().st_size for path in self.setting.place.glob("*/*")]
            assert sum(room_of(size) for size in sizes) <= self.setting.room

    def close(self) -> None:
        """All are killed; the next worker removes what is unfinished or too much."""
        for worker in self.workers:
            worker.vanish()
        self.workers = [Worker(self.setting)]
        self.check_room()
        assert not list(self.setting.place.glob("*/.*")), "unfinished files"
        self.workers[0].vanish()


@contextlib.contextmanager
def states_apart(tokens: int | None) -> Generator[None]:
    """States are copied so near to each other."""
    with contextlib.ExitStack() as stack:
        if tokens is not None:
            for name in ("EVERY", "APART", "WORTH_A_STOP"):
                stack.enter_context(mock.patch.object(keeper, name, tokens))
        yield


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    script=scripts,
    num_workers=st.sampled_from([1, 1, 2]),
    kind=st.sampled_from(KINDS),
    streams=st.booleans(),
    num_cells=st.integers(100, 400),
    num_slots=st.integers(1, 4),
    capacity=st.integers(8, 64),
    repeats=st.sampled_from([None, None, 2]),
    memory=st.sampled_from([0, 1, 3_000, 12_000, BIG, BIG]),
    room=st.sampled_from([0, 1, 3 * PAGE, 9 * PAGE, BIG, BIG, BIG]),
    max_stall=st.sampled_from([0.4, 30.0]),
    drafting=st.booleans(),
    apart=st.sampled_from([None, 3, 20]),
)
def test_every_answer_is_the_one_it_gets_alone(
    script: list[Turn | Event],
    num_workers: int,
    kind: dict[str, Any],
    streams: bool,
    num_cells: int,
    num_slots: int,
    capacity: int,
    repeats: int | None,
    memory: int,
    room: int,
    max_stall: float,
    drafting: bool,
    apart: int | None,
) -> None:
    """Whatever memory, disk and workers suffer, nobody's answer changes and no budget is passed."""
    backend = {
        "num_cells": num_cells,
        "num_slots": num_slots,
        "streams": streams,
        "capacity": capacity,
        "memory": repeats,
        **kind,
    }
    with tempfile.TemporaryDirectory() as folder, states_apart(apart):
        setting = Setting(backend, Path(folder), memory, room, max_stall, drafting)
        conversations = Conversations(setting, num_workers)
        try:
            for number, item in enumerate(script):
                conversations.happens(item, number)
            conversations.finish()
            conversations.check_room()
        finally:
            conversations.close()


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_conversation_outlives_its_worker(
    kind: dict[str, Any], streams: bool, tmp_path: Path
) -> None:
    """After each turn the worker is killed; the next one computes only what is new."""
    backend = {"num_cells": 600, "num_slots": 3, "streams": streams, **kind}
    conversations = Conversations(Setting(backend, tmp_path, BIG, BIG), 1)
    for number in range(5):
        before = conversations.texts[-1]
        last = len(conversations.texts) - 1
        conversations.happens(went_on(last, (number, 30), steps=None), number)
        worker = conversations.workers[0]
        # The last token of an answer is not computed before somebody goes on from it.
        known = len(before) - 1 if number else 0
        assert worker.cached[f"r{number}"] == known
        computed = len(conversations.texts[-1]) - 1 - known
        assert worker.backend.rows_computed == computed
        conversations.kill(0)
    conversations.close()


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_the_same_words_after_another_beginning(kind: dict[str, Any], tmp_path: Path) -> None:
    """The state of a token belongs to all tokens before it, not to those of its block only."""
    backend = {"num_cells": 600, "num_slots": 1, **kind}
    conversations = Conversations(Setting(backend, tmp_path, BIG, BIG), 1)
    longest = len(SYSTEM_PROMPTS) - 1
    first = Turn(longest, None, twin=False, more=(1, 60), length=9, marked=False, steps=None)
    conversations.happens(first, 0)
    # Its first two blocks and two tokens, but for the first one.
    conversations.happens(first._replace(kept=130, twin=True, more=(2, 30)), 1)
    conversations.kill(0)
    conversations.happens(first._replace(of=longest + 1, twin=True, more=(3, 20)), 2)
    worker = conversations.workers[0]
    # A file is of use only as a whole.
    assert worker.cached["r2"] == (0 if worker.backend.shape.needs_rest else 128)
    conversations.close()
