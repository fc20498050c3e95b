"""A child that dies, hangs or is given up costs its own job and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from tests.bench.run.jobs import job_of
from tests.bench.run.processes import arguments, children, is_gone, wait_until
from worker.bench.run.runner import ask
from worker.bench.sizes import EFFORTS
from worker.bench.stages import LOAD, SERVE, SPEED, Failure, Progress
from worker.demo import MODEL_PATH
from worker.settings import Settings

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
SIZES = EFFORTS["quick"][0]
TWO_STREAMS = Settings(parallel=2, ctx_size=1500)
LONG = job_of(SPEED, MODEL_PATH, TWO_STREAMS, SIZES)

_ASK = """
import sys, msgspec
from pathlib import Path
from worker.bench.run.runner import ask
from worker.bench.stages import StageJob
for line in ask(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=StageJob)):
    pass
"""


def child() -> int:
    """The one child that measures."""
    (pid,) = [
        pid for pid in children(os.getpid()) if b"worker.bench.measure.child" in arguments(pid)
    ]
    return pid


def test_a_native_abort_is_a_failure_of_one_job() -> None:
    """The signal is named, and the next job runs as if nothing had been."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        with closing(ask(LONG)) as messages:
            assert isinstance(next(messages), Progress)
            os.kill(child(), number)
            last = list(messages)[-1]
        assert isinstance(last, Failure)
        assert last.code == "ABORTED"
        assert number.name in last.message
    job = job_of(LOAD, MODEL_PATH, Settings(ctx_size=512), SIZES)
    with closing(ask(job)) as messages:
        assert not isinstance(list(messages)[-1], Failure)


def test_a_child_that_hangs_is_given_up() -> None:
    """After a time without a line, which no job takes; then its process is gone."""
    with closing(ask(LONG, silence_s=10)) as messages:
        assert isinstance(next(messages), Progress)
        pid = child()
        os.kill(pid, signal.SIGSTOP)
        last = list(messages)[-1]
    assert isinstance(last, Failure)
    assert last.code == "SILENT"
    assert is_gone(pid)


def test_a_run_that_is_given_up_leaves_nothing_behind() -> None:
    """Closing the generator ends the child and the server that it has started."""
    job = job_of(SERVE, MODEL_PATH, TWO_STREAMS, SIZES)
    with closing(ask(job)) as messages:
        assert isinstance(next(messages), Progress)  # the server is ready
        pid = child()
        (server,) = children(pid)
        assert b"serve" in arguments(server)
    assert is_gone(pid)
    wait_until(lambda: is_gone(server))


def test_a_server_ends_with_a_child_that_was_killed() -> None:
    """Also where the child can do nothing about it."""
    job = job_of(SERVE, MODEL_PATH, TWO_STREAMS, SIZES)
    with closing(ask(job)) as messages:
        next(messages)
        (server,) = children(child())
        os.kill(child(), signal.SIGKILL)
        wait_until(lambda: is_gone(server))
        assert isinstance(list(messages)[-1], Failure)


def test_a_child_does_not_outlive_who_asked(tmp_path: Path) -> None:
    """Also in the middle of what it has nothing to report about for hours."""
    endless = msgspec.structs.replace(SIZES, repetitions=10**6)
    settings = msgspec.structs.replace(LONG.settings, mmap=True)
    job = msgspec.structs.replace(LONG, sizes=endless, settings=settings)
    (tmp_path / "job").write_bytes(msgspec.json.encode(job))
    with subprocess.Popen([sys.executable, "-c", _ASK, str(tmp_path / "job")]) as parent:
        wait_until(lambda: bool(children(parent.pid)))
        (pid,) = children(parent.pid)
        wait_until(lambda: str(MODEL_PATH) in Path(f"/proc/{pid}/maps").read_text())
        parent.kill()
    wait_until(lambda: is_gone(pid))


def test_a_file_that_does_not_load_says_why(tmp_path: Path) -> None:
    """The worker's own error arrives with its code."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(MODEL_PATH.read_bytes()[:100_000])
    job = job_of(LOAD, broken, Settings(ctx_size=512), SIZES)
    with closing(ask(job)) as messages:
        last = list(messages)[-1]
    assert isinstance(last, Failure)
    assert last.code == "TRUNCATED"


def test_what_does_not_fit_says_so() -> None:
    """Before anything is loaded."""
    job = job_of(LOAD, MODEL_PATH, Settings(ctx_size=2**30), SIZES)
    with closing(ask(job)) as messages:
        last = list(messages)[-1]
    assert isinstance(last, Failure)
    assert last.code == "DOES_NOT_FIT"
