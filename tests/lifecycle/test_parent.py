"""Workers whose parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.lifecycle.leaving import PROMPT, SMALL_STEPS, Post, is_free, streaming
from tests.support.programs.processes import PATIENCE_S, Server, side_by_side, until

KINDS = {"process": ["--die-with-parent"], "stdin": ["--die-with-parent", "stdin"]}


def is_running(pid: int) -> bool:
    """Whether the process is there and not just waiting to be collected by its new parent."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "XZ"
    return False


@contextlib.contextmanager
def spawned(*arguments: str | Path, env: dict[str, str] | None = None) -> Generator[Server]:
    """A worker with a parent between it and us; `process` is the parent."""
    module = "tests.lifecycle.spawner"
    server = Server(*map(str, arguments), env=env, module=module, forked=sys.platform == "linux")
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        if server.pid and is_running(server.pid):
            os.kill(server.pid, signal.SIGKILL)
        server.end()


def gone(server: Server) -> None:
    """No process is left and the port is free, soon: the drain would take ten minutes."""
    server.process.kill()
    server.process.wait()
    until(lambda: not is_running(server.pid))
    until(lambda: is_free(server.url))


SLOW = {"STEP_SECONDS": "0.05"}
OPTIONS = ("--drain-timeout", "600", *SMALL_STEPS)


def loading(tiny: Path, kind: str) -> None:
    """A worker that loads leaves when its parent dies."""
    env = {**SLOW, "LOADED": "/never"}
    with spawned("--model", tiny, *OPTIONS, *KINDS[kind], env=env) as server:
        gone(server)


def idle(tiny: Path, kind: str) -> None:
    """An idle worker leaves when its parent dies."""
    with spawned("--model", tiny, *OPTIONS, *KINDS[kind], env=SLOW) as server:
        server.wait_until_ready()
        gone(server)


def reading_a_prompt(tiny: Path, kind: str) -> None:
    """A prompt that is being read when the parent dies gets 503 at once."""
    with spawned("--model", tiny, *OPTIONS, *KINDS[kind], env=SLOW) as server:
        server.wait_until_ready()
        request = Post(server, {"prompt": PROMPT, "max_tokens": 1})
        server.wait_until(slots_processing=1)
        gone(server)
        assert request.result()[0] == 503


def in_a_stream(tiny: Path, kind: str) -> None:
    """A stream ends with an error event when the parent dies."""
    with spawned("--model", tiny, *OPTIONS, *KINDS[kind], env=SLOW) as server:
        server.wait_until_ready()
        with streaming(server) as lines:
            gone(server)
            assert '"error"' in [line for line in lines if line][-2]


@pytest.mark.parametrize("kind", KINDS)
def test_in_each_state(tiny: Path, kind: str) -> None:
    """A worker leaves when its parent dies: loading, idle, in a prompt, in a stream."""
    checks = [loading, idle, reading_a_prompt, in_a_stream]
    side_by_side(lambda check: check(tiny, kind), checks)


def test_while_draining(tiny: Path) -> None:
    """A worker that drains leaves at once when its parent dies."""
    with spawned("--model", tiny, *OPTIONS, "--die-with-parent", env=SLOW) as server:
        server.wait_until_ready()
        with streaming(server) as lines:
            os.kill(server.pid, signal.SIGTERM)
            server.wait_for("stopping")
            gone(server)
            assert '"error"' in [line for line in lines if line][-2]


def test_spawned_from_a_thread_that_ends(tiny: Path) -> None:
    """A worker outlives the thread that started it: its parent is the process."""
    env = {"SPAWN_FROM": "thread"}
    with spawned("--model", tiny, "-t", "1", "--die-with-parent", env=env) as server:
        server.wait_until_ready()
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        gone(server)


def test_without_being_asked(tiny: Path) -> None:
    """A worker outlives its parent unless told otherwise."""
    with spawned("--model", tiny, "-t", "1") as server:
        server.wait_until_ready()
        server.process.kill()
        server.process.wait()
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not is_running(server.pid))


def test_parent_that_died_before(tiny: Path) -> None:
    """Standard input that has ended already is noticed, however early that was."""
    with spawned("--model", tiny, "-t", "1", "--die-with-parent", "stdin") as server:
        gone(server)


def test_it_leaves_whatever_fails() -> None:
    """Who would stop it otherwise is gone."""
    watch = "import time; from worker.lifecycle import parent; "
    watch += "parent.watch('stdin', lambda: 1 / 0); time.sleep(600)"
    done = subprocess.run(
        [sys.executable, "-c", watch],
        stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"the parent is gone" in done.stderr
