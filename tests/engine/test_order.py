"""Who comes first: priorities, accounts, who makes way, who sits out a step."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from tests.engine.driving import KINDS, check_books, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.account import NOBODY, Account, account_for
from worker.cache.store import Store
from worker.engine.engine import Engine
from worker.engine.order import AGE_S, GONE_S, MOST_KNOWN, MOST_OWED, SLACK, Order
from worker.engine.request import Request
from worker.engine.sequence import Delta, Sequence

ALICE, BOB = Account("alice"), Account("bob")


def asked(name: str, priority: int = 0, account: Account = NOBODY, **more: Any) -> Request:
    """A request of somebody's; its prompt is its own."""
    prompt = [1 + ord(letter) % 40 for letter in name] * 4
    return msgspec.structs.replace(
        request(name, prompt, **more), priority=priority, account=account
    )


class Queue:
    """An order over sequences that nobody computes; `now` is the time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.order = Order(lambda: self.now)
        self.running: list[Sequence] = []

    def come(self, name: str, priority: int = 0, account: Account = NOBODY) -> Sequence:
        """One more waits."""
        sequence = Sequence(asked(name, priority, account), 64, self.now)
        self.order.add(sequence)
        return sequence

    def admit(self, count: int = 1) -> str:
        """So many that come first run; their names."""
        names: list[str] = []
        for _ in range(count):
            sequence = self.order.next()
            if sequence is None:
                break
            self.order.admit(sequence)
            self.running.append(sequence)
            names.append(sequence.id)
        return " ".join(names)

    def end(self, sequence: Sequence) -> None:
        """It has ended."""
        self.order.end(sequence, ran=sequence in self.running)
        if sequence in self.running:
            self.running.remove(sequence)

    def rival(self, sequence: Sequence) -> str | None:
        """Who makes way for it."""
        found = self.order.rival(sequence, self.running)
        return found and found.id


def test_all_alike() -> None:
    """First in, first out, and a sequence that was put back is the first again."""
    queue = Queue()
    for name in "abc":
        queue.come(name)
    assert queue.admit(2) == "a b"
    queue.order.put_back(queue.running.pop())
    assert len(queue.order) == 2
    assert queue.admit(9) == "b c"
    assert queue.order.next() is None
    assert not queue.order


def test_the_lowest_priority_number_comes_first() -> None:
    """Whatever the order of their coming; within a priority the first one does."""
    queue = Queue()
    for name, priority in (("a", 5), ("b", 0), ("c", -3), ("d", 0), ("e", 5)):
        queue.come(name, priority)
    assert [sequence.id for sequence in queue.order] == ["c", "b", "d", "a", "e"]
    assert queue.admit(9) == "c b d a e"


def test_waiting_is_worth_a_priority() -> None:
    """A priority of which nothing was admitted is worth one more each AGE_S seconds, and what it
    got so nobody takes from it; then it begins again."""
    queue = Queue()
    queue.come("late", 2)
    queue.come("last", 2)
    for number in range(9):
        queue.come(f"u{number}")
    queue.now = 2.9 * AGE_S
    assert queue.admit() == "u0"
    queue.now = 3 * AGE_S
    assert queue.admit(3) == "late u1 u2"
    assert next(s.worth for s in queue.running if s.id == "late") == -1
    assert queue.rival(queue.come("x")) is None
    assert queue.rival(queue.come("y", -2)) == "u2"


def test_the_account_served_least_comes_first() -> None:
    """However many requests another one has; whoever is new begins with the lowest counter."""
    queue = Queue()
    for number in range(4):
        queue.come(f"a{number}", 0, ALICE)
    queue.admit(2)
    queue.come("b0", 0, BOB)
    assert queue.order.is_shared
    queue.order.charge([(sequence, 50) for sequence in queue.running])
    queue.come("b1", 0, BOB)
    assert queue.admit(1) == "b0"
    queue.order.charge([(queue.running[-1], 120)])
    assert queue.admit(2) == "a2 a3"
    # Carol was never here; she is owed nothing of what the others had.
    queue.come("c0", 0, Account("carol"))
    queue.come("a4", 0, ALICE)
    queue.order.charge([(queue.running[0], 1)])
    assert queue.admit(3) == "c0 a4 b1"


def test_weights() -> None:
    """A counter is divided by the account's weight."""
    queue = Queue()
    heavy = Account("heavy", weight=3)
    counts = {"bob": 0, "heavy": 0}
    for number in range(120):
        queue.come(f"b{number}", 0, BOB)
        queue.come(f"h{number}", 0, heavy)
    for _ in range(100):
        queue.admit()
        sequence = queue.running[-1]
        queue.order.charge([(sequence, 10)])
        counts[sequence.account.name] += 1
        queue.end(sequence)
    assert counts == {"bob": 25, "heavy": 75}


def test_what_is_owed_is_bounded() -> None:
    """Whoever waited while another one had everything is ahead by MOST_OWED, no more; both take
    part in the step after which the other one is ahead by no more than SLACK."""
    queue = Queue()
    one = queue.come("a", 0, ALICE)
    two = queue.come("b", 0, BOB)
    queue.admit(2)
    queue.order.charge([(one, 10 * MOST_OWED)])
    steps = 0
    while queue.order.in_turn([one, two]) == [two]:
        queue.order.charge([(two, 8)])
        steps += 1
    assert steps == -(-(MOST_OWED - SLACK - two.num_missing) // 8)
    assert queue.order.in_turn([one, two]) != [two]


@pytest.mark.parametrize(("seconds", "share"), [(GONE_S, 100), (GONE_S + 0.1, 0)])
def test_a_short_absence(seconds: float, share: int) -> None:
    """An account that has nothing here for a moment is owed what others had meanwhile; one that was
    gone for longer is owed nothing."""
    queue = Queue()
    other = queue.come("b", 0, BOB)
    queue.end(queue.come("a0", 0, ALICE))
    queue.now += seconds
    if queue.order.is_shared:
        queue.order.charge([(other, 100)])
    again = queue.come("a1", 0, ALICE)
    assert queue.order.is_shared
    queue.order.charge([(again, share + SLACK + 1)])
    assert queue.order.in_turn([other]) == [other]
    assert queue.order.in_turn([other, again]) == [other, again]
    queue.order.charge([(again, other.num_missing)])
    assert queue.order.in_turn([other, again]) == [other]


def test_no_more_accounts_are_remembered_than_may_be() -> None:
    """Those that came last, and all that are here: users have any number of names. What one of
    them had more than others counts until it is forgotten."""

    def come_again(others: int) -> bool:
        queue = Queue()
        here = queue.come("x", 0, BOB)
        queue.order.charge([(queue.come("a", 0, ALICE), 500), (here, 300)])
        queue.end(next(iter(s for s in queue.order if s is not here)))
        for number in range(others):
            queue.now += GONE_S + 0.1
            queue.end(queue.come("u", 0, account_for(f"{number}")))
        queue.now += GONE_S + 0.1
        again = queue.come("a1", 0, ALICE)
        return again in queue.order.in_turn([again, here])

    assert not come_again(MOST_KNOWN - 1)
    assert come_again(MOST_KNOWN)


def test_running_at_once() -> None:
    """What an account may not run waits, and lets others pass."""
    queue = Queue()
    few = Account("few", running=2)
    for number in range(4):
        queue.come(f"f{number}", -1, few)
    queue.come("x")
    assert queue.admit(9) == "f0 f1 x"
    assert len(queue.order) == 2
    queue.end(queue.running[0])
    assert queue.admit(9) == "f2"


def test_who_makes_way() -> None:
    """The youngest of the worst priority, for one of a better one; nobody among equals."""
    queue = Queue()
    for name, priority in (("a", 0), ("b", 4), ("c", 4), ("d", 1)):
        queue.come(name, priority)
    queue.admit(4)
    assert queue.rival(queue.come("x", 4)) is None
    assert queue.rival(queue.come("y", 0)) == "c"
    assert queue.rival(queue.come("z", -9)) == "c"
    queue.running[2].suspect_until = 9  # it must run alone soon
    assert queue.order.last(queue.running).id == "c"


def test_an_account_makes_way() -> None:
    """Where it holds more slots than the other one would, so that nobody swaps back."""
    queue = Queue()
    for number in range(3):
        queue.come(f"a{number}", 0, ALICE)
    queue.admit(3)
    first = queue.come("b0", 0, BOB)
    assert queue.rival(first) == "a2"
    queue.order.put_back(queue.running.pop())
    queue.order.admit(first)
    queue.running.append(first)
    assert queue.rival(queue.come("b1", 0, BOB)) is None
    back = queue.order.next()
    assert back is not None
    assert back.id == "a2"
    assert queue.rival(back) is None


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: " ".join(map(str, kind.items())))
@pytest.mark.parametrize("streams", [False, True], ids=["unified", "streams"])
def test_nothing_is_lost(kind: dict[str, Any], streams: bool) -> None:
    """Whoever makes way goes on with what it would have said, and computes none of it again."""
    backend = FakeBackend(num_cells=400, num_slots=2, streams=streams, vocab_size=5_000, **kind)
    store = Store(1 << 20, needs_rest=backend.shape.needs_rest)
    engine = Engine(backend, lambda: backend.now, store=store, max_stall=0.0)
    draw = random.Random(7)
    requests = [asked(f"low{n}", 3, max_tokens=60) for n in range(3)]
    requests += [asked(f"high{n}", 0, max_tokens=9) for n in range(8)]
    deltas: dict[str, list[Delta]] = {each.id: [] for each in requests}
    for each in requests:
        engine.add(each)
        for _ in range(draw.randrange(3, 12)):
            for delta in engine.step():
                deltas[delta.id].append(delta)
            check_books(engine, backend)
    assert engine.snapshot.num_preempted >= 4
    for name, more in run(engine).items():
        deltas[name] += more
    for each in requests:
        prompt, count = list(each.prompt.tokens), each.params.max_tokens
        assert count is not None
        expected = continuation(prompt, count, 5_000, backend.memory)
        assert tokens_of(deltas[each.id]) == expected
    needed = sum(len(each.prompt.tokens) + len(tokens_of(deltas[each.id])) for each in requests)
    if not backend.shape.needs_rest and streams:
        assert backend.rows_computed <= needed


def test_nobody_makes_way_without_a_place_to_put_it() -> None:
    """Without host memory, or where it is too small, what runs goes on, and the better one is the
    next."""
    for store in (None, Store(1, needs_rest=False)):
        backend = FakeBackend(num_cells=400, num_slots=1, vocab_size=5_000)
        engine = engine_over(backend, store)
        for name, priority in (("low", 3), ("lower", 5), ("high", 0)):
            engine.add(asked(name, priority, max_tokens=30))
            engine.step()
        order = [delta.id for delta in _all(engine) if delta.is_last]
        assert order == ["low", "high", "lower"]
        assert engine.snapshot.num_preempted == 0


def _all(engine: Engine) -> list[Delta]:
    return [delta for deltas in run(engine).values() for delta in deltas]


@pytest.mark.parametrize("streams", [False, True], ids=["unified", "streams"])
@pytest.mark.parametrize(("weight", "share"), [(1.0, 0.5), (2.0, 2 / 3)])
def test_shares_of_tokens(streams: bool, weight: float, share: float) -> None:
    """One stream beside thirty of another account gets its share, and both get what they get
    alone."""
    backend = FakeBackend(
        num_cells=4_000, num_slots=4, streams=streams, capacity=64, vocab_size=5_000
    )
    store = Store(1 << 22, needs_rest=False)
    engine = Engine(backend, lambda: backend.now, store=store)
    person = Account("person", weight=weight)
    for number in range(30):
        engine.add(asked(f"agent{number}", 0, Account("agent"), max_tokens=200))
    for _ in range(20):
        engine.step()
    counts = {"person": 0, "agent": 0}
    engine.add(asked("person0", 0, person, max_tokens=60))
    number = 0
    while number < 8:
        for delta in engine.step():
            account = delta.id.rstrip("0123456789")
            counts[account] += delta.token is not None
            if delta.is_last and account == "person":
                number += 1
                engine.add(asked(f"person{number}", 0, person, max_tokens=60))
        check_books(engine, backend)
    total = sum(counts.values())
    assert abs(counts["person"] / total - share) < 0.05, counts


def test_one_stream_is_in_each_step() -> None:
    """An account with one stream gets a row in each step, however many streams others have: these
    share steps with it instead of taking turns."""
    backend = FakeBackend(num_cells=4_000, num_slots=8, streams=True, vocab_size=5_000)
    engine = Engine(backend, lambda: backend.now, store=Store(1 << 22, needs_rest=False))
    for number in range(20):
        engine.add(asked(f"b{number}", 0, BOB, max_tokens=300))
    engine.add(asked("a", 0, ALICE, max_tokens=250))
    count, steps = 0, 0
    while count < 200:
        count += sum(delta.id == "a" and delta.token is not None for delta in engine.step())
        steps += count > 0
    assert steps <= 205


def share_and_rows(slots: int, accounts: dict[str, Account]) -> tuple[float, float]:
    """What alice with as many requests as slots gets beside bob with twice as many: her share of
    tokens, and how many a step has."""
    backend = FakeBackend(
        num_cells=9_000, num_slots=slots, streams=True, vocab_size=5_000, max_outputs=slots
    )
    engine = Engine(backend, lambda: backend.now, store=Store(1 << 22, needs_rest=False))
    draw, counts, steps = random.Random(5), {"alice": 0, "bob": 0}, 0

    def come(name: str, number: int) -> None:
        tokens = draw.randrange(20, 150)
        engine.add(asked(f"{name}{number}", 0, accounts[name], max_tokens=tokens))

    for number in range(3 * slots):
        come("bob" if number % 3 else "alice", number)
    while sum(counts.values()) < 400 * slots:
        steps += 1
        for delta in engine.step():
            name = delta.id.rstrip("0123456789")
            counts[name] += delta.token is not None
            if delta.is_last:
                come(name, 100 + sum(counts.values()))
    total = sum(counts.values())
    return counts["alice"] / total, total / steps


@pytest.mark.parametrize("slots", [4, 15])
def test_accounts_with_many_requests_share_all_steps(slots: int) -> None:
    """Where both have streams for half of the slots, each has its share, and steps have nearly as
    many rows as without accounts."""
    share, rows = share_and_rows(slots, {"alice": ALICE, "bob": BOB})
    _, most = share_and_rows(slots, {"alice": NOBODY, "bob": NOBODY})
    assert abs(share - 0.5) < 0.05
    assert rows >= 0.95 * most


def test_one_account_alone_is_as_nobody() -> None:
    """Its streams run in each step, and nothing is counted for it."""
    backend = FakeBackend(num_cells=4_000, num_slots=4, streams=True, vocab_size=5_000)
    engine = Engine(backend, lambda: backend.now)
    for number in range(4):
        engine.add(asked(f"a{number}", 0, ALICE, max_tokens=30))
    engine.step()
    assert not engine.scheduler.order.is_shared
    while engine.snapshot.stats.sampled_tokens < 20:
        engine.step()
    assert len(engine.step()) == 4
