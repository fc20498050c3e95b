"""The number of compute threads is learned on real steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from worker.llama.backend import LlamaBackend
from worker.llama.context_options import ContextOptions
from worker.llama.process.threads import ThreadChoice
from worker.llama.weights import LoadOptions

LIMIT = 8


def settle(choice: ThreadChoice, seconds: dict[int, float], rows: int = 1) -> int:
    """Steps of this length by number of threads, until nothing is tried; how many they were."""
    for count in range(200):
        if choice.is_settled(rows):
            return count
        choice.observe(rows, seconds[choice.one if rows == 1 else choice.several])
    raise AssertionError("it goes on trying")


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        ({8: 0.8, 4: 0.5, 2: 0.4, 1: 0.7}, 2),
        ({8: 0.8, 4: 0.79, 2: 0.1, 1: 0.1}, 8),  # no gain worth having: no further tried
        ({8: 0.8, 4: 0.4, 2: 0.2, 1: 0.1}, 1),
        ({8: 0.1, 4: 0.2, 2: 0.4, 1: 0.8}, 8),
        ({8: 0.0, 4: 0.0, 2: 0.0, 1: 0.0}, 8),  # a clock that stands still
    ],
)
@pytest.mark.parametrize("rows", [1, 5])
def test_halves_are_tried(seconds: dict[int, float], best: int, rows: int) -> None:
    """Fewer threads are tried as long as fewer are clearly faster, within a few dozen steps."""
    choice = ThreadChoice(LIMIT)
    assert settle(choice, seconds, rows) <= 18 * 3
    other = choice.several if rows == 1 else choice.one
    assert ((choice.one if rows == 1 else choice.several), other) == (best, LIMIT)


def test_a_bad_number_is_left_at_once() -> None:
    """One turn is enough to see that half the threads take twice the time, or one long step."""
    assert settle(ThreadChoice(2), {2: 0.001, 1: 0.002}) == 6
    assert settle(ThreadChoice(2), {2: 0.1, 1: 0.2}) == 4


@pytest.mark.parametrize("waited", [0.02, 0.1])
def test_a_step_that_waited_for_a_neighbour_decides_nothing(waited: float) -> None:
    """The first step with one thread takes so much longer than the others."""
    choice = ThreadChoice(2)
    while not choice.is_settled(1):
        seconds = {2: 0.02, 1: 0.012}[choice.one]
        if choice.one == 1:
            seconds, waited = seconds + waited, 0.0
        choice.observe(1, seconds)
    assert choice.one == 1


def test_a_far_better_number_is_taken_at_once() -> None:
    """Threads that wait for each other on a busy machine must not go on doing so."""
    choice = ThreadChoice(2)
    assert settle(choice, {2: 0.4, 1: 0.1}) == 6
    assert choice.one == 1


def test_the_step_with_a_new_team_does_not_count() -> None:
    """The first step with more threads is slow; that says nothing of the next ones."""
    choice, before = ThreadChoice(2), 2
    while not choice.is_settled(1):
        threads = choice.one
        choice.observe(1, {2: 0.2, 1: 0.1}[threads] + 5 * (threads > before))
        before = threads
    assert choice.one == 1


def test_other_rows_begin_anew() -> None:
    """Steps of different numbers of rows are never compared."""
    choice = ThreadChoice(2)
    for rows in range(2, 200):
        choice.observe(rows, 1 / rows)
    assert choice.several == 2
    assert not choice.is_settled(2)


def test_tried_again_when_neighbours_have_gone() -> None:
    """The machine was busy and one thread was best; later two are, and after that one again."""
    choice = ThreadChoice(2)
    for best in (1, 2, 1):
        for _ in range(3000):
            choice.observe(1, 0.1 if choice.one == best else 0.2)
        assert choice.one == best


def test_tried_again_at_once_when_they_are_seen_to_leave() -> None:
    """A verdict of a busy hour would wait for a thousand steps."""
    choice = ThreadChoice(2)
    for _ in range(5_000):
        choice.observe(1, {2: 0.2, 1: 0.1}[choice.one])
    assert choice.best == (1, 2)
    choice.note_neighbours(busy=True)
    choice.note_neighbours(busy=False)
    for _ in range(20):
        choice.observe(1, {2: 0.1, 1: 0.2}[choice.one])
    assert choice.best == (2, 2)


def test_a_backend_tells_its_choice_of_neighbours(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it learns from how long compute threads wait for a CPU."""
    options = ContextOptions(num_cells=512, num_slots=4, threads=2, threads_batch=2)
    told: list[bool] = []

    def note(_: ThreadChoice, *, busy: bool) -> None:
        told.append(busy)

    monkeypatch.setattr(ThreadChoice, "note_neighbours", note)
    monkeypatch.setattr("worker.llama.spin._INTERVAL_S", 1e9)  # nobody looks meanwhile
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.choose_threads()
        for position, busy in enumerate((False, True, False)):
            backend.spin.is_shared = busy
            backend.batch.clear()
            backend.batch.add_one(5, position, 0)
            backend.decode()
    assert told == [False, True, False]


def test_a_wrong_verdict_does_not_last() -> None:
    """One thread was best in the few steps of the trial only: two are back within a hundred."""
    choice = ThreadChoice(2)
    settle(choice, {2: 0.4, 1: 0.1})
    assert choice.one == 1
    for _ in range(100):
        choice.observe(1, {2: 0.1, 1: 0.2}[choice.one])
    assert choice.one == 2


@pytest.mark.parametrize("best", [1, 2])
def test_verdicts_that_repeat_are_asked_for_less_often(best: int) -> None:
    """Few of many steps are spent on trials."""
    choice, tried = ThreadChoice(2), 0
    for _ in range(5000):
        tried += choice.one != best
        choice.observe(1, 0.1 if choice.one == best else 0.12)
    assert choice.one == best
    assert tried < 120


def test_trials_are_told() -> None:
    """Whoever learns from the time of steps must not learn from these."""
    choice = ThreadChoice(2)
    told: list[bool] = []
    for _ in range(7):
        told.append(choice.is_trial(1))
        choice.observe(1, {2: 0.001, 1: 0.002}[choice.one])
    # a turn of the usual number, one of the other, and then it is settled
    assert told == [True, False, False, True, True, True, False]


def test_a_context_is_set_to_them(tiny: Path) -> None:
    """Real steps learn; what was chosen is what the context computes with."""
    options = ContextOptions(num_cells=512, num_slots=4, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.warm_up()
        assert backend.context.threads == 2
        backend.choose_threads()
        tried: set[int] = set()
        for position in range(12):
            tried.add(backend.context.threads)
            backend.batch.clear()
            backend.batch.add_one(5, position, 0)
            backend.decode()
        assert tried == {1, 2}
        assert backend.context.threads_batch == 2
        assert backend.spin.threads == backend.context.threads


def test_chunks_of_prompts_try_nothing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While streams try one thread, prompts between their steps have two."""
    options = ContextOptions(num_cells=512, num_slots=3, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.choose_threads()
        used: dict[str, list[int]] = {"streams": [], "prompt": []}

        def note(_batch: object) -> None:
            used[kind].append(backend.context.threads_batch)

        monkeypatch.setattr(backend.context, "_decode", note)
        for step in range(6):
            kind = "streams"
            backend.batch.clear()
            backend.batch.add_one(5, step, 1)
            backend.batch.add_one(5, step, 2)
            backend.decode()
            kind = "prompt"
            backend.batch.clear()
            backend.batch.add(np.full(10, 5, np.int32), 10 * step, 0)
            backend.decode()
    assert set(used["streams"]) == {1, 2}
    assert used["prompt"] == [2] * 6


def test_chunks_of_prompts_teach_nothing(tiny: Path) -> None:
    """Their time depends on their length."""
    options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.choose_threads()
        for step in range(20):
            backend.batch.clear()
            backend.batch.add_one(5, step, 1)
            backend.batch.add(np.full(10, 5, np.int32), 10 * step, 0)
            backend.decode()
            assert backend.context.threads_batch == 2
            assert not backend.is_trial


def test_who_measures_gets_what_was_chosen(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the last step tried another number."""
    options = ContextOptions(num_cells=512, num_slots=4, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        now = 0.0

        def decode() -> None:
            nonlocal now
            context = backend.context
            threads = context.threads if backend.batch.size == 1 else context.threads_batch
            now += {1: 0.2, 2: 0.1}[threads]

        monkeypatch.setattr(backend.context, "decode", decode)
        monkeypatch.setattr("worker.llama.backend.time.perf_counter", lambda: now)
        backend.choose_threads()
        backend.settle_threads()
        assert (backend.context.threads, backend.context.threads_batch) == (2, 2)
        assert backend.spin.threads == 2


def test_who_measures_chooses_before(tiny: Path) -> None:
    """Afterwards nothing is tried any more, and the cache is empty."""
    options = ContextOptions(num_cells=512, num_slots=4, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.choose_threads()
        backend.settle_threads()
        chosen = backend.context.threads, backend.context.threads_batch
        assert backend.context.span(0) == (-1, -1)
        for position in range(20):
            backend.batch.clear()
            backend.batch.add_one(5, position, 0)
            backend.decode()
            assert (backend.context.threads, backend.context.threads_batch) == chosen
