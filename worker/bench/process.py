"""A child's process: started, listened to, ended."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator
from typing import IO, Any

import msgspec

from worker.bench.job import Failure, Job, Line, Progress, Result
from worker.bench.server import clean_environment

# A single batch of a large model can take minutes; nothing takes longer than this in silence.
SILENCE_S = 1800.0


def ask(job: Job, *, silence_s: float = SILENCE_S) -> Generator[Progress | Failure | Result]:
    """Run the job in a process of its own; its lines, the last of which says how it ended.

    When the generator is closed, so is the process, with all that it started.
    """
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            # -P: a folder named `worker` where we happen to stand is not ours.
            [sys.executable, "-P", "-m", "worker.bench.child"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            process_group=0, env={**clean_environment(), "GGML_NO_BACKTRACE": "1"},
        )  # fmt: skip
        try:
            yield from _listen(process, job, errors, silence_s)
        finally:
            _end(process)


def _listen(
    process: subprocess.Popen[bytes], job: Job, errors: IO[bytes], silence_s: float
) -> Generator[Progress | Failure | Result]:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(BrokenPipeError):  # how it ended is told below
        process.stdin.write(msgspec.json.encode(job) + b"\n")
        process.stdin.flush()
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Line)
    for line in _lines(process.stdout.fileno(), silence_s):
        if line is None:
            yield Failure(code="SILENT", message=f"Nothing was heard for {silence_s:g} s.")
            return
        message = decoder.decode(line)
        yield message
        if not isinstance(message, Progress):
            return
    process.wait()
    yield Failure(code="ABORTED", message=_ending(process.returncode, errors))


def _lines(fd: int, silence_s: float) -> Generator[bytes | None]:
    """Whole lines until the end; None when nothing came for too long."""
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while True:
            if not selector.select(silence_s):
                yield None
                return
            data = os.read(fd, 1 << 16)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from lines


def _ending(code: int, errors: IO[bytes]) -> str:
    """How the process ended without an answer, and the last that it printed."""
    how = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f"The process ended {how}" + (f": {lines[-1][:300]}" if lines else "") + "."


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started; a quantiser, which is in a session of its own, follows."""
    if process.stdout is not None:
        process.stdout.close()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
