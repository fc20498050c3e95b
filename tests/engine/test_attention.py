"""Which way attention is computed: chosen by what steps take, and left where that does not pay."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.driving import engine_over, request, run, tokens_of
from tests.support.fakes import FakeBackend, continuation
from worker.engine.backend import BatchError
from worker.engine.engine import Engine
from worker.engine.kv.attention import Attention

CHANGE_S = 0.2
Cost = Callable[[bool, int, int, bool], float]  # fused, rows, position, is a prompt's -> seconds


def measured_here(fused: bool, rows: int, position: int, is_prompt: bool) -> float:
    """125M shape: plain costs more at once, and less for each token before."""
    del is_prompt
    return rows * ((5e-3 + 5.5e-6 * position) if fused else (6e-3 + 2.2e-6 * position))


def measured_elsewhere(fused: bool, rows: int, position: int, is_prompt: bool) -> float:
    """A machine whose plain attention reads prompts a quarter slower and writes as fast."""
    del position
    return rows * 5e-3 * (1 if fused or not is_prompt else 1.3)


class Played:
    """Steps one after the other, with changes as soon as they seem to pay."""

    def __init__(self, cost: Cost) -> None:
        self.cost = cost
        self.attention = Attention()
        self.fused = True
        self.changes = 0
        self.seconds = 0.0

    def steps(
        self, count: int, *, position: int, rows: int = 1, prompt: bool = False, noise: float = 1.0
    ) -> None:
        """So many steps of the same kind."""
        for _ in range(count):
            if self.attention.wants_change(CHANGE_S):
                self.fused = not self.fused
                self.changes += 1
                self.seconds += CHANGE_S
                self.attention.changed()
            seconds = noise * self.cost(self.fused, rows, position, prompt)
            self.seconds += seconds
            self.attention.observe(
                fused=self.fused, rows=rows, position=position, seconds=seconds, is_prompt=prompt
            )


def test_short_contexts_stay_fused() -> None:
    """Nothing is tried where nothing can be gained."""
    played = Played(measured_here)
    played.steps(20_000, position=200)
    played.steps(2_000, position=200, rows=8)
    assert played.fused
    assert played.changes == 0


@pytest.mark.parametrize(("rows", "position"), [(1, 700), (8, 900), (1, 4000)])
def test_deep_contexts_become_plain(rows: int, position: int) -> None:
    """After some seconds of deep steps: tried, and taken."""
    played = Played(measured_here)
    played.steps(100, position=100, rows=rows)
    played.steps(3_000, position=position, rows=rows)
    assert not played.fused
    assert played.changes == 3


def test_what_a_trial_found_is_taken_at_once() -> None:
    """It does not wait for as much lost time again, nor for prompts that gain nothing."""
    played = Played(measured_here)
    while played.changes < 2:
        played.steps(1, position=900)
    played.steps(20, position=900, rows=32, prompt=True)
    played.steps(12, position=900)
    assert played.fused
    played.steps(1, position=900)
    assert not played.fused


def test_what_a_trial_found_is_not_taken_where_it_gains_nothing() -> None:
    """Contexts became short while it went on."""
    played = Played(measured_here)
    while played.changes < 2:
        played.steps(1, position=900)
    played.steps(300, position=100)
    assert played.changes == 2
    assert played.fused


def test_nothing_is_tried_before_steps_that_lose_nothing() -> None:
    """Deep contexts lost much while nothing could be changed; then there are short ones only."""
    played = Played(measured_here)
    for position in (*[900] * 300, 100):
        played.attention.observe(
            fused=True, rows=1, position=position, seconds=0.01, is_prompt=False
        )
    played.steps(300, position=100)
    assert played.changes == 0
    played.steps(2, position=900)
    assert played.changes == 1


def test_back_where_contexts_become_short() -> None:
    """Each is tried once, and then known: the last change needs no trial."""
    played = Played(measured_here)
    played.steps(200, position=100)
    played.steps(2_000, position=2_000)
    assert not played.fused
    played.steps(4_000, position=100)
    assert played.fused
    assert played.changes == 3 + 3
    played.steps(20_000, position=2_000)
    assert not played.fused
    assert played.changes == 3 + 3 + 1


def test_a_trial_that_does_not_pay_is_not_repeated_for_long() -> None:
    """Where plain attention is no faster it costs two changes, and soon nothing."""
    played = Played(measured_elsewhere)
    for _ in range(300):
        played.steps(3, position=700, rows=64, prompt=True)
        played.steps(60, position=900)
    assert played.fused
    assert played.changes == 2


@pytest.mark.parametrize("speeds", [(1.0, 1.1, 1.4), (1.4, 1.1, 1.0)])
def test_what_is_better_than_both_is_better(speeds: tuple[float, ...]) -> None:
    """Also where the machine became slower or faster during a trial."""
    played = Played(measured_here)
    for count, noise in enumerate(speeds):
        while played.changes <= count:
            played.steps(1, position=1_500, noise=noise)
    assert played.changes == 3
    played.steps(2_000, position=1_500)
    assert not played.fused
    assert played.changes == 3


@pytest.mark.parametrize("speeds", [(3.0, 1.0), (1.0, 3.0)])
def test_a_neighbour_that_leaves_during_a_trial(speeds: tuple[float, float]) -> None:
    """What it took, or gave back, is no merit of plain attention."""
    played = Played(measured_elsewhere)
    while not played.changes:
        played.steps(1, position=900, noise=speeds[0])
    played.steps(20_000, position=900, noise=speeds[1])
    assert played.fused


def test_what_was_found_long_ago_is_tried_again() -> None:
    """A machine that becomes another one: plain attention saves nothing, and later much."""
    played = Played(measured_elsewhere)
    played.steps(20_000, position=900)
    assert played.fused
    played.cost = measured_here
    played.steps(400_000, position=900)
    assert not played.fused


def test_a_machine_whose_speed_changes() -> None:
    """Changes take little time even where every minute takes another time for the same step."""
    played = Played(measured_here)
    for minute in range(100):
        played.steps(1_000, position=300, noise=1.5 if minute % 2 else 1.0)
    assert played.changes * CHANGE_S < 0.03 * played.seconds


@pytest.mark.parametrize("speeds", [(3.0, 1.0), (1.0, 3.0)])
def test_what_was_learned_beside_others_holds_without_them(speeds: tuple[float, float]) -> None:
    """A machine becomes three times as fast, or slow: deep contexts still become plain, short ones
    fused."""
    played = Played(measured_here)
    for speed in speeds:
        for _ in range(4):
            played.steps(4_000, position=1_500, noise=speed)
            assert not played.fused
            played.steps(4_000, position=100, noise=speed)
            assert played.fused


@pytest.mark.parametrize("positions", [(600, 1_500, 3_000), (20, 300, 700, 1_500)])
@pytest.mark.parametrize("seed", range(3))
def test_beside_a_machine_that_wanders(positions: tuple[int, ...], seed: int) -> None:
    """Steps that take half or twice as long by the minute, and now and then eight times: the time
    lost by wrong choices and by changes is less than half of what plain attention gains."""
    draw = random.Random(seed)
    played, fused, best, speed = Played(measured_here), 0.0, 0.0, 0.0
    for _ in range(1_500):
        position, rows = draw.choice(positions), draw.choice([1, 2, 4])
        for _ in range(60):
            speed = 0.995 * speed + draw.gauss(0, 0.03)
            noise = math.exp(speed + draw.gauss(0, 0.15)) * (8 if draw.random() < 0.003 else 1)
            played.steps(1, position=position, rows=rows, noise=noise)
            costs = [noise * measured_here(way, rows, position, False) for way in (True, False)]
            fused += costs[0]
            best += min(costs)
    assert played.seconds - best < (fused - best) / 2


def test_a_step_that_was_held_up_counts_little() -> None:
    """One step of a second among those of 5 ms changes nothing."""
    played = Played(measured_here)
    played.steps(500, position=100)
    played.steps(1, position=100, noise=200)
    played.steps(500, position=100)
    assert played.changes == 0
    assert played.attention.lost_s == 0


def test_the_engine_changes_between_two_steps() -> None:
    """Running sequences go on with what they have, and get the tokens that they get alone."""
    backend = FakeBackend(num_cells=4_096, num_slots=2, streams=True, chooses_attention=True)
    decode = backend.decode

    def slower_fused() -> None:
        backend.now += backend.fused
        decode()

    backend.decode = slower_fused  # type: ignore[method-assign]
    engine = engine_over(backend)
    prompts = {name: [ord(name) % 40 + i % 9 + 1 for i in range(600)] for name in "ab"}
    for name, prompt in prompts.items():
        engine.add(request(name, prompt, max_tokens=200))
    deltas = run(engine)
    assert not backend.fused
    assert engine.snapshot.stats.num_rearranged == backend.num_arranged == 3
    for name, prompt in prompts.items():
        assert tokens_of(deltas[name]) == continuation(prompt, 200, backend.vocab_size)


def lose(attention: Attention) -> None:
    """It looks as if much had been lost."""
    attention.lost_s, attention.is_losing = 1e9, True


def begun(*, num_cells: int, max_tokens: int) -> tuple[FakeBackend, Engine, Attention]:
    """An engine that chooses, after the first step of request `a`."""
    backend = FakeBackend(
        num_cells=num_cells, num_slots=2, streams=True, chooses_attention=True, per_row=0.0
    )
    engine = engine_over(backend)
    attention = engine.scheduler.layout.attention
    assert attention is not None
    engine.add(request("a", [1, 2, 3], max_tokens=max_tokens))
    engine.step()
    return backend, engine, attention


def test_a_failed_change_teaches_nothing() -> None:
    """Steps after it are no steps of the other way: that stays to be tried."""
    played = Played(measured_here)
    played.steps(20, position=900)
    played.attention.failed()
    played.steps(40, position=900)
    assert played.attention.lost_s > 0


def test_only_where_rows_look_at_their_own_cells() -> None:
    """A pool of cells that several sequences share keeps attention fused, and makes it so."""
    backend, engine, attention = begun(num_cells=1_000, max_tokens=40)
    lose(attention)
    engine.step()
    assert not backend.fused
    engine.add(request("b", [1 + i % 9 for i in range(700)], max_tokens=2))
    while not engine.is_idle:
        lose(attention)
        engine.step()
        assert backend.fused or not backend.unified
    assert backend.num_arranged > 1


def test_a_change_that_fails_is_not_tried_again_at_once() -> None:
    """Whoever lost its state computes it again, once."""
    backend, engine, attention = begun(num_cells=400, max_tokens=30)
    lose(attention)
    backend.failures = [BatchError]
    deltas = run(engine)
    assert backend.fused
    assert backend.num_arranged == 1
    assert attention.worth > Attention().worth
    assert deltas["a"][-1].error is None


def test_one_slow_change_does_not_forbid_the_next() -> None:
    """A neighbour that took the CPU once may not keep a busy server in the slower way."""
    backend, engine, attention = begun(num_cells=4_000, max_tokens=400)
    arrange, slow = backend.arrange, [2.0]

    def arranged(**given: Any) -> set[int]:
        backend.now += slow.pop() if slow else 0.01
        return arrange(**given)

    backend.arrange = arranged  # type: ignore[method-assign]
    for _ in range(6):
        for _ in range(4):
            engine.step()
        lose(attention)
    assert backend.num_arranged == 5
