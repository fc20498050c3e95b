"""Rows that nobody reads: added where a whole block of rows takes less time, and not else."""

from __future__ import annotations

import pytest

from tests.engine.driving import check_books, engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.engine.backend import BatchError, Kernels


def backend_of(slots: int, *, streams: bool = False, fewest: int = 13) -> FakeBackend:
    """A backend with room for each slot, of 20 rows a batch."""
    return FakeBackend(
        num_cells=64 * slots, num_slots=slots, capacity=20, max_outputs=20, vocab_size=10**6,
        streams=streams, fewest=fewest,
    )  # fmt: skip


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(("fewest", "rows"), [(13, 16), (0, 14)])
def test_steps_are_filled_up_to_a_block(*, streams: bool, fewest: int, rows: int) -> None:
    """Fourteen streams take steps of 16 rows with such kernels; their tokens are the same."""
    backend = backend_of(16, streams=streams, fewest=fewest)
    engine = engine_over(backend)
    prompts = {f"{number}": [number + 2, 9] for number in range(14)}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt, max_tokens=20))
    deltas = run(engine)
    check_books(engine, backend)
    for name, prompt in prompts.items():
        assert tokens_of(deltas[name]) == continuation(prompt, 20, backend.vocab_size)
    assert backend.batch_sizes.count(rows) > 15


def test_another_slot_must_be_there() -> None:
    """Where all slots run, nothing is added."""
    backend = backend_of(14)
    engine = engine_over(backend)
    for number in range(14):
        engine.add(request(f"{number}", [number + 2, 9], max_tokens=20))
    run(engine)
    assert 16 not in backend.batch_sizes[2:]


def test_a_filled_step_that_fails_leaves_no_row_behind() -> None:
    """What the slots beside the running ones hold then is forgotten."""
    backend = backend_of(16)
    engine = engine_over(backend)
    for number in range(14):
        engine.add(request(f"{number}", [number + 2, 9], max_tokens=20))
    while backend.batch_sizes[-1:] != [16]:
        engine.step()
    backend.failures = [BatchError]
    run(engine)
    check_books(engine, backend)


def test_whole_blocks_and_few_rows_are_left_alone() -> None:
    """Only 13 to 15 rows are filled up: 12 take less time than 16."""
    kernels = Kernels(fewest=13)
    assert [kernels.num_padding(rows) for rows in range(11, 18)] == [0, 0, 3, 2, 1, 0, 0]
