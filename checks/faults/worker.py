"""A worker with all seams in place."""

from __future__ import annotations

import contextlib
import functools
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

from checks.faults.block import VARIABLE, Block
from tests.support.programs.processes import Server, WorkerProcess

PROGRAM = "checks.faults.faulty"
COMPILER = shutil.which("gcc") or shutil.which("cc")
WHY_NOT = "no C compiler: the system's calls cannot be failed"
# What an operator is told: the exit codes of the contract.
FAILED = frozenset({1, 2, 3, 4, 5})


@functools.cache
def shim() -> Path:
    """The compiled shim."""
    assert COMPILER is not None
    source = Path(__file__).with_name("shim.c")
    out = Path(tempfile.mkdtemp(prefix="faults-")) / "shim.so"
    subprocess.run(
        [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(out), str(source), "-ldl"], check=True
    )
    return out


def environment(block: Block, *, system: bool) -> dict[str, str]:
    """Variables of a worker over this block. system: the system's calls can fail too."""
    found = {VARIABLE: str(block.path), "GGML_NO_BACKTRACE": "1"}
    return found | ({"LD_PRELOAD": str(shim())} if system else {})


@contextlib.contextmanager
def faulty(block: Block, *arguments: str | Path, system: bool = False) -> Generator[Server]:
    """A ready worker, gone afterwards."""
    server = Server(*map(str, arguments), env=environment(block, system=system), module=PROGRAM)
    try:
        yield server.wait_until_ready()
    finally:
        server.end()


def starting(block: Block, *arguments: str | Path, system: bool = True) -> WorkerProcess:
    """A worker that may never become ready."""
    options = ("serve", "--port", "0", "--log-format", "json")
    return WorkerProcess(
        *options, *map(str, arguments), env=environment(block, system=system), module=PROGRAM
    )


def left_cleanly(process: WorkerProcess) -> None:
    """Assert that it ended with a code of the contract, and said why in one line."""
    code = process.wait()
    lines = [line for line in process.lines if line.startswith("error: ")]
    assert code in FAILED, f"exit code {code}: {process.lines[-5:]}"
    assert len(lines) == 1, f"exit code {code} with {len(lines)} reasons: {process.lines[-5:]}"
    assert process.lines[-1] == lines[0], process.lines[-5:]
