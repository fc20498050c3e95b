"""Random sequences through the store, compared with a set of everything that was ever kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cache.states import FakeState, check_parts, endings, ints, rest_of
from worker.cache.store import Store

# (kept or asked for, the earlier sequence that it begins like, how much of that, what follows)
Step = tuple[bool, int, int, list[int]]

steps = st.lists(
    st.tuples(
        st.booleans(),
        st.integers(0, 30),
        st.integers(0, 300),
        endings,
    ),
    min_size=1,
    max_size=30,
)


def sequences_of(steps: list[Step]) -> list[tuple[bool, list[int]]]:
    """The tokens of each step; at least one."""
    out: list[tuple[bool, list[int]]] = []
    for kept, like, length, more in steps:
        start = out[like % len(out)][1][:length] if out else []
        out.append((kept, [*start, *more] or [1]))
    return out


def num_common(one: list[int], other: list[int]) -> int:
    """Length of the common beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


@settings(max_examples=300, deadline=None)
@given(
    steps=steps,
    rest_bytes=st.sampled_from([0, 40, 4000]),
    budget=st.one_of(st.just(1 << 40), st.integers(1, 40_000)),
)
def test_what_is_found_is_right(steps: list[Step], rest_bytes: int, budget: int) -> None:
    """Rows and rests are those of the prompt's tokens, whatever was kept and has left."""
    store = Store(budget, needs_rest=bool(rest_bytes))
    kept: list[list[int]] = []
    for keeps, tokens in sequences_of(steps):
        if keeps:
            store.keep(ints(tokens), FakeState(tokens, rest_bytes))
            kept.append(tokens)
        else:
            check_find(store, tokens, kept, rest_bytes)
            if budget == 1 << 40:
                check_everything_is_found(store, tokens, kept, rest_bytes)
        store.check_integrity()
        assert store.stats.memory_bytes <= budget


def check_find(store: Store, tokens: list[int], kept: list[list[int]], rest_bytes: int) -> None:
    """What the store gives for a prompt is the state after a beginning of it."""
    found = store.find(ints(tokens))
    loaded = store.load(found)
    assert 0 <= found.num_tokens <= found.num_common <= len(tokens)
    if loaded is None:
        assert not found.num_tokens
        return
    assert loaded.num_tokens == found.num_tokens > 0
    beginning = tokens[: loaded.num_tokens]
    check_parts(loaded.parts, beginning)
    if rest_bytes:
        assert loaded.rest is not None
        assert (loaded.rest == rest_of(beginning, rest_bytes)).all()
        assert beginning in kept
    else:
        assert loaded.rest is None


def check_everything_is_found(
    store: Store, tokens: list[int], kept: list[list[int]], rest_bytes: int
) -> None:
    """With room for everything nothing that was kept is missing."""
    found = store.find(ints(tokens))
    common = max((num_common(tokens, one) for one in kept), default=0)
    ends = [len(one) for one in kept if tokens[: len(one)] == one]
    assert found.num_common == common
    assert found.num_tokens == (max(ends, default=0) if rest_bytes else common)
    assert store.holds(ints(tokens)) == (len(tokens) in (ends if rest_bytes else [common]))
