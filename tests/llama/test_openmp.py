"""What the user's variables make of OpenMP, which computes with threads for llama.cpp."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.metrics import scrape
from tests.support.programs.processes import WorkerProcess, serving, until
from worker import machine
from worker.llama import library, soundness
from worker.llama.process import openmp

_OPTIONS = ("--ctx-size", "512", "-np", "1", "-t", "2")
needs_two = pytest.mark.skipif(machine.usable_cpus() < 2, reason="needs two CPUs")


@pytest.fixture(autouse=True)
def libgomp() -> None:
    """Only a build with libgomp has what is tested here."""
    library.start()
    if openmp.runtime("libgomp") is None:
        pytest.skip("this build of llama.cpp has no libgomp")


@needs_two
@pytest.mark.parametrize(
    ("variable", "threads"),
    [("OMP_THREAD_LIMIT=1", 1), ("OMP_MAX_ACTIVE_LEVELS=0", 1), ("OMP_NUM_THREADS=1", 2),
     ("OMP_DYNAMIC=true", 2)],
)  # fmt: skip
def test_the_threads_that_are_told_are_those_that_compute(
    variable: str, threads: int, tiny: Path
) -> None:
    """What OpenMP forbids is not told as if it computed, and one line says which variable it is."""
    name, _, value = variable.partition("=")
    with serving("--model", tiny, *_OPTIONS, env={name: value}) as server:
        server.post({"prompt": "x", "max_tokens": 2})
        told = scrape(server.url)
        assert {n for key, n in told.items() if key.startswith("worker_compute_threads")} == {
            threads
        }
        warned = [line for line in server.lines if "OpenMP grants fewer" in line]
        assert len(warned) == (threads < 2)
        assert all(variable in line for line in warned)


@needs_two
def test_a_thread_that_cannot_be_made_is_an_error_of_ours(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libgomp ends the process by itself; our last line says so, and names the variable."""
    # A death forgets the proof, and without one the proof itself would die first.
    proven = library.proof().verdict()
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path / "gguf-worker" / "proofs"])
    soundness.remember(soundness.key(library.build().variant), proven)
    env = {"OMP_STACKSIZE": "9999G", "XDG_CACHE_HOME": str(tmp_path)}
    worker = WorkerProcess("serve", "--port", "0", "--model", str(tiny), *_OPTIONS, env=env)
    try:
        assert worker.wait() == 1
        until(lambda: any(line.startswith("error: ") for line in worker.lines))
        assert worker.lines[-1].startswith("error: NATIVE_DEATH: Native code gave up while it comp")
        assert worker.lines[-1].endswith("OpenMP was told OMP_STACKSIZE=9999G: unset it.")
    finally:
        worker.end()


def test_an_exit_is_told_before_what_is_loaded_is_destroyed() -> None:
    """A destructor of a library, here one that aborts, comes after our last line."""
    code = (
        "import ctypes; from worker.llama import library; from worker.llama.process import death\n"
        "libc = ctypes.CDLL(None); pointer = ctypes.c_void_p\n"
        "libc.__cxa_atexit(ctypes.cast(libc.abort, pointer), None, None)\n"
        "death.note_task('it computed'); libc.exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: NATIVE_DEATH: Native code gave up while it computed")


def test_an_end_of_ours_is_no_death() -> None:
    """A process that has loaded llama.cpp and ends by itself says nothing."""
    code = "from worker.llama import library; library.start(); raise SystemExit(7)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (7, b"")
