"""Random arrivals, cancels, full caches and failures over the fake backend."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes import FakeBackend, continuation
from worker.engine.backend import BatchError, OutOfCells
from worker.engine.engine import Engine
from worker.engine.request import Request

arrivals = st.lists(
    st.tuples(
        st.integers(0, 12),  # steps before it comes
        st.one_of(  # prompt; some begin alike
            st.lists(st.integers(1, 49), min_size=1, max_size=30),
            st.integers(1, 30).map(lambda n: [1 + i % 7 for i in range(n)]),
            st.tuples(st.integers(1, 20), st.integers(1, 49)).map(
                lambda t: [1 + i % 7 for i in range(t[0])] + [t[1]]
            ),
        ),
        st.integers(1, 20),  # max_tokens
        st.one_of(st.none(), st.integers(0, 15)),  # cancelled after this many steps
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(
    arrivals=arrivals,
    num_cells=st.integers(40, 120),
    num_slots=st.integers(1, 5),
    capacity=st.integers(5, 24),
    cuts_tails=st.booleans(),
    memory=st.sampled_from([None, 1, 2]),
    drafting=st.booleans(),
    failures=st.lists(st.sampled_from([None, None, None, OutOfCells, BatchError]), max_size=12),
)
def test_nobody_starves_nothing_leaks(
    arrivals: list[tuple[int, list[int], int, int | None]],
    num_cells: int,
    num_slots: int,
    capacity: int,
    cuts_tails: bool,
    memory: int | None,
    drafting: bool,
    failures: list[type[Exception] | None],
) -> None:
    """Every request that is not cancelled ends, with the tokens that it gets alone."""
    backend = FakeBackend(
        num_cells=num_cells,
        num_slots=num_slots,
        capacity=capacity,
        cuts_tails=cuts_tails,
        memory=memory,
    )
    backend.failures = list(failures)
    engine = Engine(backend, lambda: backend.now, drafting=drafting)
    schedule = {
        f"r{i}": (delay, Request(id=f"r{i}", prompt=tuple(prompt), max_tokens=count), cancel)
        for i, (delay, prompt, count, cancel) in enumerate(arrivals)
    }
    tokens: dict[str, list[int]] = {name: [] for name in schedule}
    ended: dict[str, str] = {}
    cancelled: set[str] = set()
    for step in range(3_000):
        for name, (delay, request, cancel) in schedule.items():
            if delay == step:
                engine.add(request)
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
        engine.scheduler.check_integrity()
        if step > 40 and engine.is_idle:
            break
    assert engine.is_idle, "somebody starves"
    assert set(ended) | cancelled == set(schedule)
    assert backend.live_samplers == 0
    assert engine.scheduler.cells.num_live == 0
    assert engine.scheduler.cells.num_free == num_cells - backend.num_used
    for name, (_, request, _) in schedule.items():
        expected = continuation(
            list(request.prompt), request.max_tokens, backend.vocab_size, memory
        )
        if name in cancelled or ended[name] == "error":
            assert tokens[name] == expected[: len(tokens[name])]
        else:
            room = num_cells - len(request.prompt)
            assert tokens[name] == expected[:room]
