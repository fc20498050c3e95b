"""A request goes on behind what another worker has written of its answer."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.engine.driving import KINDS, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend
from worker.engine.backend import Kernels
from worker.engine.engine import Engine
from worker.engine.replay import Replay
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.engine.sequence import Delta
from worker.errors import RequestError

PROMPT = [3, 1, 4, 1, 5]
ASKED: list[dict[str, Any]] = [
    {},
    {"stop": ("zzz", "kk", "s")},
    {"logprobs": 2},
    {"logprobs": 2, "stop": ("kk", "vv", "ab")},
    {"logprobs": 1, "prompt_logprobs": 1},
]


def deltas_of(asked: Request, **backend: Any) -> tuple[list[Delta], Engine]:
    """All deltas of one request, and the engine behind them."""
    engine = engine_over(FakeBackend(**backend))
    engine.check(asked)
    engine.add(asked)
    return run(engine)["a"], engine


def told(deltas: list[Delta]) -> list[Any]:
    """What a client may hear of them; times and guesses differ."""
    return [
        (each.text, each.token, each.logprobs, each.prompt_logprobs, each.finish_reason,
         each.stopped_by, each.sampled_tokens)
        for each in deltas
    ]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_the_same_from_anywhere(kind: dict[str, Any], asked: dict[str, Any]) -> None:
    """Wherever it was cut, its deltas are those of an answer that nobody cut."""
    whole = request("a", PROMPT, 20, **asked)
    expected, _ = deltas_of(whole, **kind)
    tokens = tokens_of(expected)
    assert len(tokens) > 3
    for count in range(1, len(tokens) + 1):
        cut = msgspec.structs.replace(whole, written=tuple(tokens[:count]))
        found, engine = deltas_of(cut, **kind)
        assert told(found) == told(expected)
        assert engine.snapshot.stats.sampled_tokens == len(tokens) - count


@pytest.mark.parametrize("written", [(50,), (-1,), (1,) * 21, (1,) * 60], ids=len)
def test_what_cannot_have_been_written(written: tuple[int, ...]) -> None:
    """Tokens that the vocabulary lacks, more than were asked for, more than the context holds."""
    asked = msgspec.structs.replace(request("a", PROMPT, 20), written=written)
    with pytest.raises(RequestError):
        engine_over(FakeBackend()).check(asked)


@pytest.mark.parametrize("num_written", [1, 40, 41, 150])
def test_in_steps_that_round_alike(num_written: int) -> None:
    """The prompt is read in its own steps, and what was written in steps of few rows."""
    backend = FakeBackend(num_cells=1_000, capacity=512)
    backend.kernels = Kernels(few=40)
    asked = request("a", [1 + n % 40 for n in range(100)], 200)
    asked = msgspec.structs.replace(asked, written=(7,) * num_written)
    engine = engine_over(backend)
    engine.add(asked)
    sizes: list[int] = []
    while not sizes or sizes[-1] > 1 or sum(sizes) < 100 + num_written:
        engine.step()
        sizes.append(backend.batch.size)
    whole, rest = divmod(num_written, 40)
    assert sizes[0] == 100
    assert sizes[1 : 1 + whole + (rest > 0)] == [40] * whole + [rest] * (rest > 0)


LONE: dict[str, Any] = {"sampling": SamplingParams(temperature=0.0)}


def sizes_of(fields: dict[str, Any], lone: int, engine: Engine, step: int | None = 1) -> list[int]:
    """Rows that count of the steps in which a prompt of 100 tokens and 90 that were written, each
    in such a step, are read."""
    asked = request("a", [1 + n % 40 for n in range(100)], 200, **fields)
    engine.backend.kernels = Kernels(few=40, lone=lone)
    engine.add(msgspec.structs.replace(asked, written=(7,) * 90, steps=(step,) * 90))
    found: list[int] = []
    while sum(found) < 190:
        before = engine.scheduler.running[-1].num_computed if found else 0
        engine.step()
        found.append(engine.scheduler.running[-1].num_computed - before)
    return [count for count in found if count]


@pytest.mark.parametrize(
    ("fields", "lone", "sizes"),
    [
        (LONE, 150, [40, 10, *[1] * 40]),
        (LONE, 0, [1] * 90),
        ({"sampling": SamplingParams(top_k=1)}, 150, [40, 10, *[1] * 40]),
        ({}, 150, [40, 40, 10]),
        (LONE, 1 << 30, [40, 40, 10]),
    ],
)
def test_a_lone_text_is_read_as_it_was_written(
    fields: dict[str, Any], lone: int, sizes: list[int]
) -> None:
    """A greedy one in steps of one row from where such a row is computed otherwise."""
    engine = engine_over(FakeBackend(num_cells=1_000, capacity=512))
    assert sizes_of(fields, lone, engine) == [100, *sizes]


@pytest.mark.parametrize("streams", [True, False])
def test_beside_another_text_it_is_read_by_few(*, streams: bool) -> None:
    """Also where both take turns: nobody waits for a step a token."""
    engine = engine_over(FakeBackend(num_cells=2_000, capacity=512, streams=streams))
    engine.add(request("b", [2, 3], 400))
    engine.step()
    assert len(sizes_of(LONE, 0, engine)) < 30


@pytest.mark.parametrize("lone", [0, 150])
def test_what_was_written_beside_others_is_read_by_few(lone: int) -> None:
    engine = engine_over(FakeBackend(num_cells=1_000, capacity=512))
    assert len(sizes_of(LONE, lone, engine, step=None)) <= 4


# What a relay tells of eight tokens -> rows of each step behind the prompt, those that count too.
STEPS: dict[str, tuple[list[int | None], list[tuple[int, int]]]] = {
    "one row each": ([9, 1, 1, 1, 1, 1, 1, 1], [(1, 1)] * 8),
    "a wrong guess": ([9, 1, 4, 1, 1, 1, 1, 1], [(1, 1), (4, 1), *[(1, 1)] * 6]),
    "guesses, one of them wrong": ([9, 4, 0, 0, 1, 1, 1, 1], [(4, 3), *[(1, 1)] * 5]),
    "what had to follow": ([9, -1, -1, 3, 1, 1, 1, 1], [(3, 3), *[(1, 1)] * 5]),
    "beside others": ([9, None, None, None, 1, 1, 1, 1], [(3, 3), *[(1, 1)] * 5]),
    "cut in a step": ([9, 1, 1, 1, 1, 3, 0, 0], [*[(1, 1)] * 4, (3, 3), (1, 1)]),
    "cut before what follows": ([9, 1, 1, 1, 1, 1, -1, -1], [*[(1, 1)] * 5, (3, 3)]),
    "nonsense": ([0, 0, -1, 0, -1, 0, 10**9, 0], [(8, 8)]),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps_are_replayed(name: str) -> None:
    """Kernels for which each number of rows has bits of its own: step by step."""
    steps, expected = STEPS[name]
    replay, found, place = Replay(100, steps), list[tuple[int, int]](), 100
    while place < 108:
        found.append(replay.step_at(place, Kernels(few=40, lone=0)))
        assert 0 < found[-1][1] <= found[-1][0]
        place += found[-1][1]
    assert place == 108
    if name != "nonsense":
        assert found == expected


def test_steps_of_several_rows_are_joined() -> None:
    """Where only a row alone has other bits, before which one of several is not left alone."""
    replay, kernels = Replay(100, [9, 1, 4, 1, 2, 0, 3, None]), Kernels(few=40, lone=50)
    assert replay.step_at(100, kernels) == (1, 1)
    assert replay.step_at(101, kernels) == (2, 1)
    assert replay.step_at(102, kernels) == (1, 1)
    assert replay.step_at(103, kernels) == (5, 5)
    assert replay.step_at(90, Kernels(few=40, lone=110)) == (20, 20)


def test_a_step_is_as_large_as_it_was() -> None:
    """Rows that only fill it leave the cache again, and deltas tell the same steps."""
    backend = FakeBackend(num_cells=1_000, capacity=512)
    backend.kernels = Kernels(few=40, lone=0)
    asked = request("a", [1 + n % 40 for n in range(100)], 200, tells_steps=True, **LONE)
    engine = engine_over(backend)
    engine.add(msgspec.structs.replace(asked, written=(7,) * 4, steps=(9, 1, 4, 1)))
    sizes: list[int] = []
    deltas: list[Delta] = []
    while len(sizes) < 6:
        deltas += engine.step()
        sizes.append(backend.batch.size)
        engine.scheduler.check_integrity()
    assert sizes == [100, 1, 4, 1, 1, 1]
    assert [each.step for each in deltas] == [None, None, None, None, 1, 1]


@pytest.mark.parametrize("steps", [(), (1, 1), (1,) * 300])
def test_steps_of_another_number(steps: tuple[int, ...]) -> None:
    """A relay that tells too few or too many: the text goes on, and again once it was put back."""
    engine = engine_over(FakeBackend(num_cells=1_000, capacity=512))
    engine.backend.kernels = Kernels(few=40, lone=0)
    asked = request("a", PROMPT, 200, **LONE)
    engine.add(msgspec.structs.replace(asked, written=(7,) * 20, steps=steps))
    while not engine.scheduler.running or engine.scheduler.running[0].num_known < 40:
        engine.step()
    sequence = engine.scheduler.running[0]
    engine.scheduler.put_back(sequence)
    for _ in range(60):
        engine.step()
    assert sequence.num_known > 40
