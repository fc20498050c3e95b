"""Workers whose parent is killed."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.lifecycle.test_leaving import PROMPT, SMALL_STEPS, Post, is_free, streaming
from tests.support.processes import Server, side_by_side, until

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
    server = Server(*map(str, arguments), env=env, module="tests.lifecycle.spawner")
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
    server.process.wait(10)
    until(lambda: not is_running(server.pid), seconds=5)
    until(lambda: is_free(server.url), seconds=5)


OPTIONS = ("--drain-timeout", "600", *SMALL_STEPS)


def loading(slow_model: Path, kind: str) -> None:
    """The load is given up."""
    with spawned("--model", slow_model, *OPTIONS, *KINDS[kind]) as server:
        gone(server)


def idle(slow_model: Path, kind: str) -> None:
    """An idle worker leaves."""
    with spawned("--model", slow_model, *OPTIONS, *KINDS[kind]) as server:
        server.wait_until_ready()
        gone(server)


def reading_a_prompt(slow_model: Path, kind: str) -> None:
    """The drain time is not for a worker without a manager; the client is told."""
    with spawned("--model", slow_model, *OPTIONS, *KINDS[kind]) as server:
        server.wait_until_ready()
        request = Post(server, {"prompt": PROMPT, "max_tokens": 1})
        server.wait_until(slots_processing=1)
        gone(server)
        assert request.result()[0] == 503


def in_a_stream(slow_model: Path, kind: str) -> None:
    """The stream ends with an error event."""
    with spawned("--model", slow_model, *OPTIONS, *KINDS[kind]) as server:
        server.wait_until_ready()
        with streaming(server) as lines:
            gone(server)
            assert '"error"' in [line for line in lines if line][-2]


@pytest.mark.parametrize("kind", KINDS)
def test_in_each_state(slow_model: Path, kind: str) -> None:
    """Loading, idle, in a prompt, in a stream."""
    checks = [loading, idle, reading_a_prompt, in_a_stream]
    side_by_side(lambda check: check(slow_model, kind), checks)


def test_while_draining(slow_model: Path) -> None:
    """A drain that is under way is cut short."""
    with spawned("--model", slow_model, *OPTIONS, "--die-with-parent") as server:
        server.wait_until_ready()
        with streaming(server) as lines:
            os.kill(server.pid, signal.SIGTERM)
            server.wait_for("stopping")
            gone(server)
            assert '"error"' in [line for line in lines if line][-2]


def test_spawned_from_a_thread_that_ends(tiny: Path) -> None:
    """The parent is the process: workers outlive the thread that started them."""
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
        server.process.wait(10)
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        os.kill(server.pid, signal.SIGTERM)
        until(lambda: not is_running(server.pid))


def test_parent_that_died_before(tiny: Path) -> None:
    """Standard input that has ended already is noticed, however early that was."""
    with spawned("--model", tiny, "-t", "1", "--die-with-parent", "stdin") as server:
        gone(server)
