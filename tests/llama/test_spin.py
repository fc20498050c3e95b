"""Waiting threads spin long on idle CPUs and short beside busy processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from worker import machine
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.process import openmp
from worker.llama.process.openmp import Spin
from worker.llama.weights import LoadOptions

ALONE, SHARED = 0.02, 0.9
# Says when it begins, and ends with the test, or by itself where the test was killed.
BUSY = "import os\nprint(flush=True)\nparent = os.getppid()\nwhile os.getppid() == parent: pass"
DECODES = 500  # the busiest machine takes one or two

pytestmark = pytest.mark.skipif(
    openmp.waiting_ns() is None or machine.usable_cpus() < 2,
    reason="needs Linux's scheduler statistics and two CPUs",
)


@pytest.fixture
def decoding(tiny: Path) -> Iterator[Spin]:
    """The spin of a backend that has decoded with two threads."""
    options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.warm_up()
        yield backend.spin


def steps(chosen: Spin, waited: list[float], monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether spinning is short after each tenth of a second in which so many threads waited."""
    seen: list[bool] = []
    for share in waited:
        with monkeypatch.context() as patch:
            patch.setattr(chosen, "displaced_share", lambda share=share: share)
            chosen.count_decode(0.11)
        chosen.displaced_share()
        seen.append(chosen.is_short)
    return seen


def is_parked() -> bool:
    """Whether a team is parked that libgomp counts."""
    return any(thread.name == "spin" for thread in threading.enumerate())


def test_neighbours_come_and_go(decoding: Spin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It becomes short when others stay busy, and long only after they stayed away."""
    assert steps(decoding, [ALONE, SHARED, SHARED], monkeypatch) == [False, False, True]
    assert is_parked()
    assert steps(decoding, [ALONE] * 4, monkeypatch) == [True] * 4
    assert steps(decoding, [SHARED, ALONE], monkeypatch) == [True, True]
    assert steps(decoding, [ALONE] * 4, monkeypatch)[-1] is False
    for thread in threading.enumerate():
        if thread.name == "spin":
            thread.join(60)
    assert not is_parked()


def test_a_hiccup_decides_nothing(decoding: Spin, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who took a CPU for a tenth of a second is gone before a short spin helps."""
    assert not any(steps(decoding, [ALONE, SHARED, ALONE, SHARED, ALONE], monkeypatch))


def test_a_moment_decides_nothing(decoding: Spin, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks after a tenth of a second of decoding, not after each step."""
    monkeypatch.setattr(decoding, "displaced_share", lambda: SHARED)
    decoding.count_decode(0.01)
    assert not decoding.is_short


def test_one_thread_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a team there is nothing to shorten."""
    alone = Spin(1)
    monkeypatch.setattr(alone, "displaced_share", lambda: SHARED)
    for _ in range(3):
        alone.count_decode(0.2)
    assert alone.is_shared
    assert not alone.is_short


def test_the_first_step_finds_its_threads(tiny: Path) -> None:
    """They are there before it, in the thread that decodes."""
    options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
    with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
        backend.warm_up()

        def begin() -> tuple[set[str], set[str]]:
            before = threads()
            backend.spin.form_team()
            formed = threads()
            backend.batch.add(np.full(8, 5), 0, 0)
            backend.batch.outputs[7] = 1
            backend.decode()
            return formed - before, threads() - formed

        with ThreadPoolExecutor(1) as pool:
            by_forming, by_decoding = pool.submit(begin).result()
    assert by_forming
    assert not by_decoding


def threads() -> set[str]:
    """Ids of this process's threads, native ones among them."""
    return {task.name for task in Path("/proc/self/task").iterdir()}


def test_a_busy_machine_is_noticed(tiny: Path) -> None:
    """With a busy process for each CPU threads soon spin short."""
    options = ContextOptions(num_cells=512, num_slots=2, threads=2, threads_batch=2)
    neighbours = [
        subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE)
        for _ in range(machine.usable_cpus())
    ]
    try:
        for neighbour in neighbours:
            assert neighbour.stdout is not None
            neighbour.stdout.readline()
        with LlamaBackend.open(tiny, LoadOptions(n_gpu_layers=0), options) as backend:
            backend.warm_up()
            for _ in range(DECODES):
                if backend.spin.is_short:
                    break
                backend.batch.clear()
                backend.batch.add(np.full(256, 5), 0, 0)
                backend.batch.outputs[255] = 1
                backend.decode()
                backend.context.clear()
            assert backend.spin.is_short
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.communicate()


def test_a_thread_that_ends_meanwhile_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads are read one after the other; one that has ended by then is passed over."""
    monkeypatch.setattr("worker.llama.process.openmp.TASKS", tmp_path)
    monkeypatch.setattr(openmp, "TASKS", tmp_path)
    for name, text in ((str(os.getpid()), "900 7 1"), ("2", "30 5 1"), ("3", None)):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "schedstat").write_text(text)
    assert openmp.waiting_ns() == 12
    (tmp_path / str(os.getpid()) / "schedstat").write_text("0 0 0")
    assert openmp.waiting_ns() is None  # this kernel does not count
    (tmp_path / str(os.getpid()) / "schedstat").unlink()
    assert openmp.waiting_ns() is None  # nor does this one


def test_a_choice_in_the_environment_is_left_alone() -> None:
    """Where the user has set libgomp's variables, they stay as they are."""
    code = (
        "import os; from worker.llama import library; from worker.llama.process import openmp\n"
        "print(os.environ['GOMP_SPINCOUNT'], openmp.Spin(2)._gomp)"
    )
    environment = {**os.environ, "GOMP_SPINCOUNT": "77"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["77", "None"]
