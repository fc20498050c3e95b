"""What is kept of sequences, and what is found again, by example."""

from __future__ import annotations

import numpy as np

from tests.cache.states import ROW_BYTES, FakeState, check_parts, ints, rest_of
from worker.cache.block import OVERHEAD
from worker.cache.store import Store

BIG = 1 << 30
A = list(range(100, 300))  # 200 tokens: three whole blocks and 8 tokens


def kept(tokens: list[int], store: Store, rest_bytes: int = 0) -> FakeState:
    """Keep a sequence, and return its state, which has counted what was copied."""
    state = FakeState(tokens, rest_bytes)
    store.keep(ints(tokens), state)
    store.check_integrity()
    return state


def num_found(store: Store, tokens: list[int]) -> int:
    """How many tokens of a prompt are found; what is loaded is checked."""
    found = store.find(ints(tokens))
    loaded = store.load(found)
    store.check_integrity()
    if loaded is None:
        assert found.num_tokens == 0
        return 0
    check_parts(loaded.parts, tokens[: found.num_tokens])
    return found.num_tokens


def test_nothing_is_found_in_an_empty_store() -> None:
    """No tokens, no parts."""
    store = Store(BIG, needs_rest=False)
    assert num_found(store, A) == 0
    assert num_found(store, []) == 0
    assert not store.holds(ints(A))


def test_any_beginning_is_found() -> None:
    """Rows belong to single tokens, so a common beginning of any length can be used."""
    store = Store(BIG, needs_rest=False)
    kept(A, store)
    for length in (1, 63, 64, 65, 128, 199, 200):
        assert num_found(store, A[:length]) == length
        assert num_found(store, [*A[:length], 7, 7]) == length
        assert store.holds(ints(A[:length]))
    assert not store.holds(ints([*A, 7]))
    assert num_found(store, [7, *A]) == 0


def test_only_new_blocks_are_copied() -> None:
    """What another sequence has in common is there; a shorter last block is copied whole."""
    store = Store(BIG, needs_rest=False)
    assert kept(A, store).copied == [(0, 64), (64, 128), (128, 192), (192, 200)]
    assert kept(A, store).copied == []
    assert kept(A[:150], store).copied == []
    longer = [*A, *range(70)]
    assert kept(longer, store).copied == [(192, 256), (256, 270)]
    other = [*A[:70], *range(70)]
    assert kept(other, store).copied == [(64, 128), (128, 140)]
    assert store.stats.kept_tokens == 270 + 76
    assert store.stats.memory_bytes == (270 + 76) * ROW_BYTES + (5 + 2) * OVERHEAD


def test_a_rest_is_needed() -> None:
    """Where models have a rest, only places with one are found; more tokens are only known."""
    store = Store(BIG, needs_rest=True)
    kept(A, store, 50)
    kept(A[:100], store, 50)
    kept([*A[:90], 1, 2, 3], store, 50)
    for length, expected in ((99, 0), (100, 100), (150, 100), (200, 200)):
        found = store.find(ints(A[:length]))
        assert (found.num_tokens, found.num_common) == (expected, length)
        assert store.holds(ints(A[:length])) == (expected == length)
    loaded = store.load(store.find(ints([*A[:100], 5])))
    assert loaded is not None
    assert loaded.rest is not None
    assert np.array_equal(loaded.rest, rest_of(A[:100], 50))
    assert [count for _, count in loaded.parts] == [64, 36]


def test_a_rest_within_the_block_of_another_sequence_is_found() -> None:
    """Two go on from a place with a rest in different ways; a third finds the place."""
    store = Store(BIG, needs_rest=True)
    kept(A[:100], store, 50)
    kept([*A[:100], 1], store, 50)
    kept([*A[:100], 2], store, 50)
    assert num_found(store, [*A[:100], 3]) == 100


def test_what_is_forgotten() -> None:
    """Its end goes, back to where another sequence goes on; with a rest and without."""
    for rest_bytes in (0, 9):
        store = Store(BIG, needs_rest=bool(rest_bytes))
        other = [*A[:70], *range(70)]
        kept(A, store, rest_bytes)
        kept(other, store, rest_bytes)
        store.forget(ints([*A, 5]))
        store.check_integrity()
        assert num_found(store, A) == (0 if rest_bytes else 70)
        assert num_found(store, other) == 140
        store.forget(ints(other[:30]))  # the end of a block is another's
        store.check_integrity()
        assert num_found(store, other) == 140
        store.forget(ints(other))
        store.check_integrity()
        assert (num_found(store, other), store.stats.memory_bytes) == (0, 0)


def test_the_rest_is_copied_out_of_the_scratch_buffer() -> None:
    """The backend uses its buffer again; what was kept stays."""
    store = Store(BIG, needs_rest=True)
    scratch = np.arange(100, dtype=np.uint8)
    state = FakeState(A, 1)
    state.rest = scratch[10:20]
    store.keep(ints(A), state)
    scratch[:] = 0
    loaded = store.load(store.find(ints(A)))
    assert loaded is not None
    assert loaded.rest is not None
    assert loaded.rest.tolist() == list(range(10, 20))


def test_a_state_without_the_rest_that_it_needs_is_not_kept() -> None:
    """It could never be restored."""
    store = Store(BIG, needs_rest=True)
    store.keep(ints(A), FakeState(A))
    assert store.stats.memory_bytes == 0


def test_the_oldest_leaves_first_and_its_end_before_its_beginning() -> None:
    """Three conversations, room for two: of the first one the system prompt remains."""
    system = A[:64]
    block = 64 * ROW_BYTES + OVERHEAD
    store = Store(5 * block, needs_rest=False)
    chats = [[*system, *[i] * 128] for i in range(3)]
    for chat in chats:
        kept(chat, store)
    assert [num_found(store, chat) for chat in chats] == [64, 192, 192]
    assert store.stats.evicted_tokens == 128


def test_what_came_back_outlives_what_was_seen_once() -> None:
    """Prompts that nobody asks for again do not push a conversation out."""
    block = 64 * ROW_BYTES + OVERHEAD
    store = Store(8 * block, needs_rest=False)
    kept(A[:128], store)
    assert num_found(store, A[:128]) == 128
    kept(A[:192], store)  # it goes on
    for i in range(20):
        kept([i] * 192, store)
    assert num_found(store, A) == 192


def test_what_is_larger_than_the_budget() -> None:
    """Its first blocks are kept, or nothing where a rest is needed; others stay where they are."""
    block = 64 * ROW_BYTES + OVERHEAD
    store = Store(2 * block, needs_rest=False)
    kept(A, store)
    assert num_found(store, A) == 128
    store = Store(2 * block, needs_rest=True)
    kept([1, 2], store, 8)
    kept(A, store, 8)
    assert num_found(store, A) == 0
    assert num_found(store, [1, 2]) == 2


def test_blocks_that_no_rest_needs_leave_at_once() -> None:
    """When a rest has to leave, the rows behind the last remaining rest go with it."""
    rest = 2000
    size = 4 * OVERHEAD + 192 * ROW_BYTES + rest
    store = Store(2 * size, needs_rest=True)
    kept(A[:192], store, rest)
    kept([1] * 192, store, rest)
    kept([2] * 192, store, rest)
    assert num_found(store, A) == 0
    assert store.stats.memory_bytes == 2 * size
    assert store.stats.kept_tokens == 2 * 192


def test_loaded_parts_outlive_their_eviction() -> None:
    """What was handed out stays right when its blocks leave the tree."""
    store = Store(4 * (64 * ROW_BYTES + OVERHEAD), needs_rest=False)
    kept(A, store)
    loaded = store.load(store.find(ints(A)))
    kept([1] * 256, store)
    kept([2] * 256, store)
    assert loaded is not None
    check_parts(loaded.parts, A[: loaded.num_tokens])


def test_many_children_of_one_block() -> None:
    """Of a thousand sequences that begin alike, the one with the most in common is found."""
    store = Store(BIG, needs_rest=False)
    sequences = [[1, *((i >> bit) & 1 for bit in range(10)), i] for i in range(1000)]
    for tokens in sequences:
        kept_without_check(store, tokens)
    store.check_integrity()
    for tokens in sequences[::50]:
        assert num_found(store, [*tokens[:-1], 5000]) == 11
        assert num_found(store, tokens) == 12


def kept_without_check(store: Store, tokens: list[int]) -> None:
    """Keep a sequence; the books are checked later."""
    store.keep(ints(tokens), FakeState(tokens))
