"""Fitting to the memory that a cgroup or `ulimit -v` leaves, with real limits."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.programs.processes import WorkerProcess

TOP = Path("/sys/fs/cgroup")
MiB = 1 << 20


@contextlib.contextmanager
def cgroup(limit: int) -> Generator[Path]:
    """A cgroup with so many bytes of memory; skips where this process may not make one."""
    unified = (TOP / "cgroup.controllers").exists()
    folder = (TOP if unified else TOP / "memory") / f"worker-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error.strerror}")
    try:
        name = "memory.max" if unified else "memory.limit_in_bytes"
        if not (folder / name).exists():
            pytest.skip("cgroups have no memory controller here")
        (folder / name).write_text(str(limit))
        yield folder
    finally:
        folder.rmdir()


def inside(folder: Path, *words: str) -> list[str]:
    """A command line that runs in that cgroup."""
    script = f'echo $$ > "{folder}/cgroup.procs" && exec "$@"'
    return ["sh", "-c", script, "sh", sys.executable, "-m", "worker", *words]


def test_the_context_is_fitted_to_a_cgroup(tiny: Path) -> None:
    """A worker that may have 160 MiB takes a context that fits, and stays within the limit."""
    with cgroup(160 * MiB) as folder:
        process = WorkerProcess(command=inside(
            folder, "serve", "--model", str(tiny), "--port", "0", "--log-format", "json",
            "-t", "1", "--cache-type-k", "f32", "--cache-type-v", "f32", "--ubatch-size", "16",
        ))  # fmt: skip
        try:
            ready = process.wait_for("ready")
            assert 0 < ready["planned_mb"] <= 168
            assert ready["memory_mb"] <= ready["planned_mb"] * 1.2
            process.process.terminate()
            assert process.wait() == 0
        finally:
            process.end()


@pytest.mark.parametrize(
    ("limit", "options", "hint"),
    [
        (60, [], "No context fits: take a smaller quant level, or free memory."),
        (160, ["-c", "4000000"], "Start with --ctx-size "),
    ],
)
def test_what_does_not_fit_a_cgroup(tiny: Path, limit: int, options: list[str], hint: str) -> None:
    """What does not fit the cgroup is exit 4 before the load, and the error says what would fit."""
    with cgroup(limit * MiB) as folder:
        done = subprocess.run(
            inside(folder, "serve", "--model", str(tiny), "--port", "0", *options),
            capture_output=True, text=True, timeout=60, env=os.environ,
        )  # fmt: skip
    assert done.returncode == 4, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: DOES_NOT_FIT: ")
    assert hint in line


def test_what_does_not_fit_the_address_space(tiny: Path) -> None:
    """A model that does not fit `ulimit -v` is exit 4, and the error says what would fit."""
    script = f'ulimit -v 2000000 && exec "{sys.executable}" -m worker "$@"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", "serve", "--model", str(tiny), "--port", "0", "-t", "1",
         "-c", "9000000"],
        capture_output=True, text=True, timeout=60, env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 4, done.stderr
    assert "Start with --ctx-size " in done.stderr.splitlines()[-1]
