"""Lines of batches: behind all others, in what these leave free."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.engine.driving import KINDS, check_books, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.account import NOBODY, Account
from worker.cache.store import Store
from worker.engine.backend import Kernels
from worker.engine.cost import StepCost
from worker.engine.engine import Engine
from worker.engine.order import Order
from worker.engine.plan import StepPlan
from worker.engine.request import Request
from worker.engine.sequence import Sequence
from worker.engine.spare import SHARE, SpareTime
from worker.limits import BATCH_PRIORITY

BATCH = Account(is_batch=True)


def line(name: str, account: Account = BATCH, count: int = 20) -> Request:
    """A request of a batch; its prompt is its own."""
    asked = request(name, [1 + ord(letter) % 40 for letter in name] * 4, max_tokens=count)
    return msgspec.structs.replace(asked, priority=BATCH_PRIORITY, account=account)


def other(name: str, count: int = 20) -> Request:
    """A request that somebody waits for."""
    return msgspec.structs.replace(line(name, NOBODY, count), priority=0)


def running(engine: Engine) -> str:
    return " ".join(sequence.id for sequence in engine.scheduler.running)


def backend_of(slots: int, **kind: Any) -> FakeBackend:
    return FakeBackend(num_cells=2_000, num_slots=slots, vocab_size=5_000, **kind)


def test_one_slot_stays_free() -> None:
    """It is for who comes next, who runs in the next step beside all lines."""
    engine = engine_over(backend_of(3))
    for name in "abcd":
        engine.add(line(name))
    engine.step()
    assert running(engine) == "a b"
    engine.add(other("x"))
    engine.step()
    assert running(engine) == "a b x"
    engine.add(other("y"))
    engine.step()
    assert len(engine.scheduler.running) == 3
    assert {"x", "y"} < set(running(engine).split())
    assert len(run(engine)) == 6


@pytest.mark.parametrize("room", [1 << 20, 0])
@pytest.mark.parametrize("kind", KINDS)
def test_a_line_makes_way(kind: dict[str, Any], room: int) -> None:
    """In the next step, also where nothing of it can be put aside, and says the same in the end."""
    wanted: dict[str, list[int]] = {}
    for asked in (line("low"), other("high", 6)):
        alone = engine_over(backend_of(1, **kind))
        alone.add(asked)
        wanted |= {name: tokens_of(deltas) for name, deltas in run(alone).items()}
    backend = backend_of(1, **kind)
    engine = engine_over(backend, Store(room, needs_rest=backend.shape.needs_rest))
    engine.add(line("low"))
    told = [delta for _ in range(5) for delta in engine.step()]
    engine.add(other("high", 6))
    engine.step()
    assert running(engine) == "high"
    check_books(engine, backend)
    deltas = run(engine)
    assert tokens_of([*told, *deltas["low"]]) == wanted["low"]
    assert tokens_of(deltas["high"]) == wanted["high"][-len(tokens_of(deltas["high"])) :]


def rows(engine: Engine, backend: FakeBackend) -> dict[str, int]:
    """Tokens that each got from now on, until one who is no line has ended."""
    counts: dict[str, int] = {}
    del backend
    while any(not each.is_batch for each in engine.scheduler.running):
        for delta in engine.step():
            counts[delta.id] = counts.get(delta.id, 0) + (delta.token is not None)
    return counts


@pytest.mark.parametrize(("per_row", "least", "most"), [(0.0, 195, 205), (1.0, 1, 20)])
def test_beside_a_stream(per_row: float, least: int, most: int) -> None:
    """Lines that cost nothing join each step of a stream; others take SHARE of its time, and never
    nothing."""
    backend = backend_of(4, per_row=per_row)
    engine = engine_over(backend)
    engine.add(other("x", 240))
    for _ in range(30):
        engine.step()
    for name in ("a", "b"):
        engine.add(line(name, count=50 if per_row else 300))
    for _ in range(10):
        engine.step()
    began, known = backend.now, engine.scheduler.running[0].num_sampled
    counts = rows(engine, backend)
    assert least <= counts.get("a", 0) <= most
    seconds, left = backend.now - began, 240 - known
    alone = left * (1 + per_row)
    assert seconds <= alone * (1 + SHARE) + 2 * (1 + 8 * per_row)
    run(engine)


def test_prompts_of_others_are_read_first() -> None:
    """No line has a row while one is read."""
    backend = backend_of(4, capacity=8, per_row=0.0)
    engine = engine_over(backend)
    engine.add(line("a", count=200))
    for _ in range(4):
        engine.step()
    prompt = list(range(1, 41))
    engine.add(msgspec.structs.replace(request("x", prompt, max_tokens=2), priority=0))
    seen: list[str] = []
    while not any(each == "x" for each in seen):
        seen += [delta.id for delta in engine.step()]
    assert seen.count("a") == 0
    engine.abort("a")
    run(engine)


def test_a_stream_goes_on_beside_lines() -> None:
    """As it does alone: nobody looks at lines that sit out, until one of them joins, somebody comes
    or the stream ends."""
    engine = engine_over(backend_of(4, per_row=1.0, streams=True))
    scheduler, order = engine.scheduler, engine.scheduler.order
    looks = 0

    def next_one() -> Sequence | None:
        nonlocal looks
        looks += 1
        return Order.next(order)

    order.next = next_one  # type: ignore[method-assign]
    for number in range(6):
        engine.add(line(f"l{number}", count=200))
    for _ in range(12):
        engine.step()
    engine.add(other("x", 200))
    while not any(delta.id == "x" for delta in engine.step()):
        pass
    assert len(scheduler.order) > 0
    looks, steps = 0, 0
    while any(not each.is_batch for each in scheduler.running):
        engine.step()
        engine.scheduler.check_integrity()
        steps += 1
    assert steps >= 190
    assert looks <= steps // 4
    run(engine)


def test_a_leader_goes_on() -> None:
    """A line that computes what another request shares is no line until that is there."""
    backend = backend_of(4, capacity=4, per_row=1.0)
    engine = engine_over(backend)
    shared = list(range(1, 33))
    first = msgspec.structs.replace(
        request("a", [*shared, 40], max_tokens=4), priority=BATCH_PRIORITY, account=BATCH
    )
    engine.add(first)
    engine.step()
    engine.add(request("x", [*shared, 41], max_tokens=4))
    deltas = run(engine)
    assert tokens_of(deltas["x"]) == continuation([*shared, 41], 4, 5_000)[-4:]


def test_owners_share() -> None:
    """Lines of two keys get equal parts where nobody else is there."""
    backend = backend_of(4)
    engine = engine_over(backend)
    for number in range(6):
        engine.add(line(f"a{number}", Account("ann", is_batch=True), 8))
    for number in range(2):
        engine.add(line(f"b{number}", Account("bob", is_batch=True), 8))
    ended: list[str] = []
    while not engine.is_idle:
        ended += [delta.id for delta in engine.step() if delta.is_last]
    assert {"b0", "b1"} <= set(ended[:5])


def lines_of(count: int, length: int, tokens: int) -> list[Request]:
    """With prompts of so many tokens, which share nothing."""
    asked = [request(f"l{n}", [100 + n] * length, max_tokens=tokens) for n in range(count)]
    return [msgspec.structs.replace(each, priority=BATCH_PRIORITY, account=BATCH) for each in asked]


@pytest.mark.parametrize("awaited", [False, True])
def test_prompts_of_lines_are_read_first(awaited: bool) -> None:
    """So that lines write side by side, as nobody waits for a token of one; those of requests take
    turns with streams."""
    engine = engine_over(backend_of(5, streams=True, capacity=512))
    first, *others = (
        msgspec.structs.replace(each, account=NOBODY if awaited else BATCH)
        for each in lines_of(4, 60, 40)
    )
    engine.add(first)
    engine.step()
    for each in others:
        engine.add(each)
    told: list[set[str]] = []
    while not told or len(told[-1]) < 4:
        told.append({delta.id for delta in engine.step()})
    assert any("l0" in names for names in told[:-1]) == awaited
    run(engine)


@pytest.mark.parametrize(
    ("per_row", "length", "pieces"),
    [(0.1, 55, [16, 16, 23]), (0.1, 57, [16, 16, 16, 9]), (0.001, 170, [128, 42])],
)
def test_prompts_of_lines_are_read_in_pieces(
    per_row: float, length: int, pieces: list[int]
) -> None:
    """Who comes meanwhile waits for one of them: a quarter of the stall, or a block of rows."""
    backend = backend_of(5, streams=True, capacity=512, per_row=per_row)
    backend.kernels = Kernels(piece=128)
    engine = Engine(backend, lambda: backend.now, max_stall=4 * 2.0)
    first, second, third = lines_of(3, length, 40)
    for each in (first, second):  # until a step beside streams was measured
        engine.add(each)
        for _ in range(12):
            engine.step()
    begin = len(backend.batch_sizes)
    engine.add(third)
    for _ in pieces:
        engine.step()
    assert backend.batch_sizes[begin:] == pieces
    run(engine)


def test_a_line_that_writes_goes_on() -> None:
    """Also beside lines whose prompts never end."""
    engine = engine_over(backend_of(4, streams=True))
    engine.add(line("long", count=10))
    for each in lines_of(400, 8, 1):
        engine.add(each)
    ended: list[str] = []
    while "long" not in ended:
        ended += [delta.id for delta in engine.step() if delta.is_last]
    assert len(ended) < 300
    run(engine)


@pytest.mark.parametrize("asked", [line("a"), other("a")])
def test_late_tokens_of_lines_are_no_stalls(asked: Request) -> None:
    """Nobody waits for them."""
    backend = backend_of(2)
    engine = engine_over(backend)
    engine.add(asked)
    engine.step()
    backend.now += 10.0
    engine.step()
    stats = engine.snapshot.stats
    is_line = asked.account.is_batch
    assert (stats.num_stalls, sum(stats.inter_token.counts)) == ((0, 0) if is_line else (1, 1))
    run(engine)


def test_saved_time() -> None:
    """Steps in which others write earn SHARE of their time, those with lines spend what they add,
    and prompts of others earn nothing: their streams would pay for them."""
    cost = StepCost()
    cost.observe(1, 0, 0.1)
    spare = SpareTime(cost)
    engine = engine_over(backend_of(2))
    engine.add(other("x"))
    engine.add(line("a"))
    engine.step()
    x, a = engine.scheduler.running
    spare.note(StepPlan([(x, 8)], 0, 8), 0.1)
    assert not spare.is_there
    spare.note(StepPlan([(x, 1)], 1, 0), 0.1)
    assert spare.is_there
    spare.note(StepPlan([(x, 1), (a, 1)], 2, 0), 0.1 + 4.5 * SHARE * 0.1)
    assert not spare.is_there
    for _ in range(3):
        spare.note(StepPlan([(x, 1)], 1, 0), 0.1)
        assert not spare.is_there
    spare.note(StepPlan([(x, 1)], 1, 0), 0.1)
    assert spare.is_there
