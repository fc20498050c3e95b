"""Random arrivals, cancels, full caches and failures over every kind of cache."""

from __future__ import annotations

import contextlib
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.engine.driving import KINDS, check_books
from tests.support.fakes import FakeBackend, continuation
from tests.support.heads import FakeHeads
from worker.account import NOBODY, Account
from worker.cache.store import Store
from worker.engine import plan
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.kv import keeper
from worker.engine.request import GenerationParams, Prompt, Request

# (steps before it comes, prompt, max_tokens, cancelled after this many steps, the earlier request
# whose prompt and whole answer this prompt goes on from, key)
Arrival = tuple[int, list[int], int, int | None, int | None, bytes]

arrivals = st.lists(
    st.tuples(
        st.integers(0, 25),
        st.one_of(  # some begin alike
            st.lists(st.integers(1, 49), min_size=1, max_size=30),
            st.integers(1, 30).map(lambda n: [1 + i % 7 for i in range(n)]),
            st.tuples(st.integers(1, 20), st.integers(1, 49)).map(
                lambda t: [1 + i % 7 for i in range(t[0])] + [t[1]]
            ),
        ),
        st.integers(1, 20),
        st.one_of(st.none(), st.integers(0, 15)),
        st.one_of(st.none(), st.none(), st.integers(0, 11)),
        st.sampled_from([b"", b"", b"a", b"b"]),
    ),
    min_size=1,
    max_size=12,
)


def alone(request: Request, backend: FakeBackend) -> list[int]:
    """What the request gets where nobody else is there."""
    tokens, count = request.prompt.tokens, request.params.max_tokens
    assert count is not None
    key = request.prompt.key + bytes([request.prompt.begin][: request.prompt.begin])
    size, memory = backend.vocab_size, backend.memory
    return continuation(list(tokens), count, size, memory, key, backend.forces)


def begin_of(prompt: list[int], key: bytes) -> int:
    """Some of the prompts with the key `b` begin without it."""
    return prompt[0] % len(prompt) if key == b"b" else 0


def requests_of(
    arrivals: list[Arrival], backend: FakeBackend, ranks: list[tuple[int, Account]]
) -> list[Request]:
    """The arrivals' requests; a prompt that would not fit the context is cut.

    ranks: priority and account of the first ones
    """
    requests: list[Request] = []
    for i, (_, prompt, count, _, goes_on, key) in enumerate(arrivals):
        if goes_on is not None and goes_on < i:
            earlier = requests[goes_on]
            answer = alone(earlier, backend)
            prompt = [*earlier.prompt.tokens, *answer, *prompt[:3]]
        prompt = prompt[: backend.max_length - 1]
        marks = tuple(range(2, len(prompt), 5)) if i % 3 == 0 else ()
        priority, account = ranks[i] if i < len(ranks) else (0, NOBODY)
        request = Request(
            priority=priority,
            account=account,
            id=f"r{i}",
            prompt=Prompt(tuple(prompt), marks, key, begin_of(prompt, key)),
            params=GenerationParams(max_tokens=count),
        )
        requests.append(request)
    return requests


# What was computed of a prompt is lost when the layout changes, and begins without its key again.
@example(
    arrivals=[(0, [1, 2], 1, None, None, b"b"), (1, [1], 8, None, None, b"")],
    kind={}, num_cells=40, streams=True, num_slots=5, capacity=5, mixed_rows=None, few_cells=512,
    memory=None, forces=0, drafting=False, draft=None, heads=None, kept_bytes=None, every=None,
    max_stall=0.4, failures=[None, OutOfCells], ranks=[],
)  # fmt: skip
@settings(max_examples=300, deadline=None)
@given(
    arrivals=arrivals,
    kind=st.sampled_from(KINDS),
    num_cells=st.integers(40, 120),
    streams=st.booleans(),
    num_slots=st.integers(1, 5),
    capacity=st.integers(5, 24),
    mixed_rows=st.sampled_from([None, 2]),
    few_cells=st.sampled_from([plan.FEW_CELLS, 0]),
    memory=st.sampled_from([None, 1, 2]),
    forces=st.sampled_from([0, 1, 3]),
    drafting=st.booleans(),
    draft=st.sampled_from([None, None, 1, 40]),
    heads=st.sampled_from([None, None, 30, 500]),
    kept_bytes=st.sampled_from([None, 0, 2_000, 10**6]),
    every=st.sampled_from([None, 3]),
    max_stall=st.sampled_from([0.4, 30.0]),
    failures=st.lists(st.sampled_from([None, None, None, OutOfCells, BatchError]), max_size=12),
    ranks=st.lists(
        st.tuples(
            st.sampled_from([0, 0, -1, 3]),
            st.sampled_from([NOBODY, Account("a", running=1), Account("b", weight=0.3)]),
        ),
        max_size=12,
    ),
)
def test_nobody_starves_nothing_leaks(
    arrivals: list[Arrival],
    kind: dict[str, Any],
    num_cells: int,
    streams: bool,
    num_slots: int,
    capacity: int,
    mixed_rows: int | None,
    few_cells: int,
    memory: int | None,
    forces: int,
    drafting: bool,
    draft: int | None,
    heads: int | None,
    kept_bytes: int | None,
    every: int | None,
    max_stall: float,
    failures: list[type[Exception] | None],
    ranks: list[tuple[int, Account]],
) -> None:
    """Every request that is not cancelled ends, with the tokens that it gets alone."""
    backend = FakeBackend(
        num_cells=num_cells,
        num_slots=num_slots,
        streams=streams,
        capacity=capacity,
        mixed_rows=mixed_rows,
        memory=memory,
        forces=forces,
        **kind,
    )
    backend.failures = list(failures)
    store = None if kept_bytes is None else Store(kept_bytes, needs_rest=backend.shape.needs_rest)
    draft_model = None
    if draft is not None:  # it has few cells, its guesses are right, and now and then it fails
        draft_model = FakeBackend(
            num_cells=draft + 30, num_slots=num_slots, memory=backend.memory, capacity=draft + 7,
            max_outputs=draft + 7,
        )  # fmt: skip
        draft_model.failures = list(reversed(failures))
    own_heads = None
    if draft is None and heads is not None:  # the same, with states that wait for them
        own_heads = FakeHeads(backend, num_cells=heads)
        own_heads.failures = list(reversed(failures))
        own_heads.max_waiting = heads
        own_heads.encodes = heads % 2 == 1  # a drafter that reads their encoded states
    engine = Engine(
        backend, lambda: backend.now, store=store, max_stall=max_stall,
        drafting=Drafting(drafting, model=draft_model, heads=own_heads),
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(plan, "FEW_CELLS", few_cells))
        if every is not None:  # copy states in many places
            for name in ("EVERY", "APART", "WORTH_A_STOP"):
                stack.enter_context(mock.patch.object(keeper, name, every))
        run_arrivals(arrivals, engine, backend, num_cells, ranks)
        if store is not None:
            store.check_integrity()


def run_arrivals(
    arrivals: list[Arrival],
    engine: Engine,
    backend: FakeBackend,
    num_cells: int,
    ranks: list[tuple[int, Account]],
) -> None:
    """Run them to their end and compare each with what it gets alone."""
    requests = {request.id: request for request in requests_of(arrivals, backend, ranks)}
    times = {f"r{i}": (delay, cancel) for i, (delay, _, _, cancel, *_) in enumerate(arrivals)}
    tokens: dict[str, list[int]] = {name: [] for name in requests}
    ended: dict[str, str] = {}
    cancelled: set[str] = set()
    for step in range(3_000):
        for name, (delay, cancel) in times.items():
            if delay == step:
                engine.add(requests[name])
            if cancel is not None and delay + cancel == step and name not in ended:
                engine.abort(name)
                cancelled.add(name)
        for delta in engine.step():
            assert delta.id not in ended
            assert delta.id not in cancelled
            if delta.token is not None:
                tokens[delta.id].append(delta.token)
            if delta.is_last:
                ended[delta.id] = delta.finish_reason or "error"
        check_books(engine, backend)
        if step > 40 and engine.is_idle:
            break
    assert engine.is_idle, "somebody starves"
    assert set(ended) | cancelled == set(requests)
    assert backend.live_samplers == 0
    assert engine.scheduler.cells.pool.num_live == 0
    for name, request in requests.items():
        expected = alone(request, backend)
        if name in cancelled or ended[name] == "error":
            assert tokens[name] == expected[: len(tokens[name])]
        else:
            room = num_cells - len(request.prompt.tokens)
            assert tokens[name] == expected[:room]
