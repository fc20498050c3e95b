"""Who knows a prefix, and who follows whom, without an engine around."""

from __future__ import annotations

from tests.engine.driving import request
from tests.support.fakes import FakeBackend
from worker.engine.kv.cells import Cells
from worker.engine.kv.ends import PromptEnds
from worker.engine.kv.keeper import Keeper
from worker.engine.kv.prefix import Prefixes
from worker.engine.sequence import Sequence
from worker.engine.stats import Stats

PREFIX = [1 + i % 40 for i in range(20)]


class Cache:
    """Cells, slots and prefixes over a backend; computes what it is told to."""

    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.cells = Cells(backend)
        self.running: list[Sequence] = []
        keeper = Keeper(self.cells, backend, None, self.running, lambda: 0.0, max_stall=1)
        self.prefixes = Prefixes(self.cells, backend, keeper, PromptEnds(backend), Stats())

    def run(self, prompt: list[int], count: int = 0) -> Sequence:
        """A sequence that runs from now on, its next `count` tokens computed."""
        sequence = Sequence(request("a", prompt), self.backend.max_length, 0.0)
        match = self.prefixes.match(sequence, self.running)
        sequence.slot = self.prefixes.slot_for(sequence, match)
        self.prefixes.follow(sequence)
        self.running.append(sequence)
        self.compute(sequence, count)
        return sequence

    def compute(self, sequence: Sequence, count: int) -> None:
        """Compute the sequence's next `count` tokens, each in a batch of its own."""
        slot = sequence.slot
        assert slot is not None
        for _ in range(count):
            self.backend.batch.clear()
            self.backend.batch.add_one(sequence.tokens[slot.length], slot.length, slot.index)
            self.backend.decode()
            self.cells.grow(slot, 1)

    def end(self, sequence: Sequence) -> None:
        """The sequence runs no longer."""
        slot = sequence.slot
        assert slot is not None
        self.running.remove(sequence)
        self.prefixes.leave(sequence)
        sequence.slot = None
        self.cells.retire(slot)
        self.prefixes.check_integrity(self.running)


def test_what_is_being_computed_is_known() -> None:
    """A prompt follows one that has the longest beginning in common, computed or not."""
    cache = Cache(FakeBackend(num_cells=200))
    done = cache.run([*PREFIX[:10], 41, 42], count=11)
    leader = cache.run([*PREFIX, 43], count=12)
    follower = cache.run([*PREFIX, 44])
    assert done.num_computed == 11
    assert leader.cached_tokens == 10
    assert follower.num_computed == follower.cached_tokens == 20  # 10 shared and 12 computed
    assert not cache.prefixes.is_following(follower)
    late = cache.run([*PREFIX, 43, 45, 46])
    assert not cache.prefixes.is_following(late)
    assert late.num_computed == 21


def test_a_follower_waits_for_its_leader() -> None:
    """As long as its leader computes the common prefix, a follower has nothing else to compute."""
    cache = Cache(FakeBackend(num_cells=200))
    leader = cache.run([*PREFIX, 43], count=4)
    follower = cache.run([*PREFIX, 44, 45])
    assert cache.prefixes.num_unshared(follower) == 2
    cache.compute(leader, 5)
    cache.prefixes.follow_all()
    assert follower.num_computed == 0
    assert cache.prefixes.is_following(follower)
    cache.compute(leader, 12)
    cache.prefixes.follow_all()
    assert follower.num_computed == 20
    assert not cache.prefixes.is_following(follower)
    cache.cells.check_integrity()


def test_what_a_window_has_left_is_not_shared() -> None:
    """Where the leader ran ahead of its window the follower goes on alone from what it has."""
    cache = Cache(FakeBackend(num_cells=200, window=4))
    leader = cache.run([*PREFIX, 43], count=2)
    follower = cache.run([*PREFIX[:10], 44])
    assert cache.prefixes.is_following(follower)
    cache.compute(leader, 17)  # and nobody follows meanwhile
    cache.prefixes.follow_all()
    assert follower.num_computed == 0
    assert not cache.prefixes.is_following(follower)
    cache.compute(follower, 10)
    cache.cells.check_integrity()


def test_a_prefix_behind_the_window_is_not_matched() -> None:
    """A cached sequence that lost what a new one looks at is passed over."""
    cache = Cache(FakeBackend(num_cells=200, window=4))
    cache.end(cache.run(PREFIX, count=19))
    short = Sequence(request("b", PREFIX[:9]), 200, 0.0)
    assert cache.prefixes.match(short, []).num_tokens == 0
    whole = Sequence(request("c", [*PREFIX, 7]), 200, 0.0)
    assert cache.prefixes.match(whole, []).num_tokens == 19


def test_a_slot_that_changed_hands_is_no_leader() -> None:
    """When the leader's slot belongs to another sequence its follower goes on alone."""
    cache = Cache(FakeBackend(num_cells=200, num_slots=2))
    leader = cache.run([*PREFIX, 43], count=4)
    follower = cache.run([*PREFIX, 44])
    slot = leader.slot
    cache.end(leader)
    cache.cells.evict()
    other = cache.run([9] * 30, count=20)
    assert other.slot is slot
    cache.prefixes.follow_all()
    assert follower.num_computed == 0
    assert not cache.prefixes.is_following(follower)


def test_a_state_is_of_use_as_a_whole() -> None:
    """Where states cannot be cut only the longest whole one is taken over, and it is gone then."""
    cache = Cache(FakeBackend(num_cells=200, cuts_tails=False))
    first, second = cache.run(PREFIX, count=8), cache.run(PREFIX, count=5)
    assert second.num_computed == 5
    end = cache.run([9, 8, 7], count=2)
    next_one = Sequence(request("b", [9, 8, 7, 6]), 200, 0.0)
    cache.compute(end, 1)
    assert cache.prefixes.match(next_one, cache.running).num_tokens == 0  # it still runs
    cache.end(first)
    cache.end(second)
    third = cache.run(PREFIX)
    assert third.num_computed == third.cached_tokens == 8
    assert cache.run(PREFIX).num_computed == 5
    assert cache.run(PREFIX).num_computed == 0


def test_the_source_is_not_evicted_for_its_sharer() -> None:
    """Where a slot must be emptied for a sequence it is not the one whose cells it shares."""
    cache = Cache(FakeBackend(num_cells=200, num_slots=2))
    cache.end(cache.run([*PREFIX, 41], count=21))
    cache.end(cache.run([9] * 10, count=10))
    assert cache.run([*PREFIX, 42]).num_computed == len(PREFIX)
    assert [slot.length for slot in cache.cells.cached] == [len(PREFIX) + 1]


def test_a_follower_may_leave() -> None:
    """A follower that runs no longer is forgotten; what it had stays as cache."""
    cache = Cache(FakeBackend(num_cells=200))
    leader = cache.run([*PREFIX, 43], count=4)
    cache.end(cache.run([*PREFIX, 44]))
    cache.compute(leader, 5)
    cache.prefixes.follow_all()
    cache.cells.check_integrity()
