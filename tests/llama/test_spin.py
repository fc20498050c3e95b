"""Waiting threads spin long on CPUs of their own and short beside others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE_S, environment, until
from worker import machine
from worker.llama import spin
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.spin import Spin
from worker.llama.weights import LoadOptions

ALONE, SHARED = 0.02, 0.9
# They end by themselves where nobody is left to end them.
BUSY = "import time\nend = time.monotonic() + 150\nwhile time.monotonic() < end: pass"

pytestmark = pytest.mark.skipif(
    spin.waiting_ns() is None or machine.usable_cpus() < 2,
    reason="needs Linux's scheduler statistics and two CPUs",
)


@pytest.fixture
def decoding(tiny: Path) -> Iterator[Spin]:
    """The spin of a backend that has decoded with two threads."""
    options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
    with LlamaBackend(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.warm_up()
        yield backend.spin


def steps(chosen: Spin, waited: list[float], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """What is decided after each tenth of a second in which so many threads waited."""
    seen: list[bool] = []
    for share in waited:
        with monkeypatch.context() as patch:
            patch.setattr(chosen, "displaced", lambda share=share: share)
            chosen.decoded(0.11)
        chosen.displaced()
        seen.append(chosen.is_short)
    return seen


def is_parked() -> bool:
    """Whether a team is parked that libgomp counts."""
    return any(thread.name == "spin" for thread in threading.enumerate())


def test_neighbours_come_and_go(decoding: Spin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short at once when others are there, long again only when they have stayed away."""
    assert steps(decoding, [ALONE, SHARED], monkeypatch) == [False, True]
    assert is_parked()
    assert steps(decoding, [ALONE] * 4, monkeypatch) == [True] * 4
    assert steps(decoding, [SHARED, ALONE], monkeypatch) == [True, True]
    assert steps(decoding, [ALONE] * 4, monkeypatch)[-1] is False
    until(lambda: not is_parked())


def test_a_moment_decides_nothing(decoding: Spin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks after a tenth of a second of decoding, not after each step."""
    monkeypatch.setattr(decoding, "displaced", lambda: SHARED)
    decoding.decoded(0.01)
    assert not decoding.is_short


def test_one_thread_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a team there is nothing to shorten."""
    alone = Spin(1)
    monkeypatch.setattr(alone, "displaced", lambda: SHARED)
    alone.decoded(0.2)
    assert not alone.is_short


def test_a_busy_machine_is_noticed(tiny: Path) -> None:
    """With a busy process for each CPU the waiting becomes short."""
    neighbours = [
        subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(machine.usable_cpus())
    ]
    try:
        noticing = [sys.executable, "-m", "tests.llama.noticing", str(tiny)]
        subprocess.run(noticing, check=True, timeout=2 * PATIENCE_S, env=environment())
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def test_a_choice_in_the_environment_is_left_alone() -> None:
    """Who sets libgomp's variables decides for themselves."""
    code = (
        "import os; from worker.llama import library, spin\n"
        "print(os.environ['GOMP_SPINCOUNT'], spin.Spin(2)._gomp)"
    )
    environment = {**os.environ, "GOMP_SPINCOUNT": "77"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["77", "None"]
