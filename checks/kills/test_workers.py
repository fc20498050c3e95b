"""Workers that are killed while they start or serve, and those whose engine hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.lifecycle.leaving import Post, is_free, left_with
from tests.support import http
from tests.support.programs import managers
from tests.support.programs.managers import manager
from tests.support.programs.processes import Server, serving, side_by_side, starting, until
from worker.lifecycle.watchdog import STALLED_AFTER_S

# In real time only on demand: a hanging engine is given 13 seconds. An idle one ticks every second,
# so the limit cannot be much shorter than that.
SPEED = "1" if os.environ.get("EXHAUSTIVE") else "4"
LONG_PROMPT = {"prompt": [5, 9, 17, 33] * 100, "max_tokens": 2, "stream": True}
OPTIONS = ("-t", "1", "-c", "2048", "--heartbeat-interval", "600", "--drain-timeout", "600")
ROUNDS = 200 if os.environ.get("EXHAUSTIVE") else 8


def freezing(
    model: Path, when: str, *options: str, speed: str = SPEED, seconds: float = 0
) -> contextlib.AbstractContextManager[Server]:
    """A server that freezes; see `freezing.py`."""
    env = {"FREEZE": when, "SPEED": speed, "SECONDS": str(seconds)}
    module = "tests.lifecycle.freezing"
    return serving("--model", model, *OPTIONS, *options, module=module, env=env, forked=True)


def health(server: Server) -> tuple[int, str]:
    answer = http.get(server.url + "/health")
    return answer.status_code, answer.json().get("status", "")


def frozen(model: Path, when: str) -> None:
    """A frozen engine: health is 503, a heartbeat says stalled, requests get 503, then exit 1."""
    with (
        manager(managers.accepts) as hive,
        freezing(model, when, "--heartbeat-url", hive.url) as server,
    ):
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        request = Post(server, {**LONG_PROMPT, "stream": False})
        until(lambda: health(server) == (503, "stalled"))
        assert server.wait() == 1
        assert request.result()[0] == 503
        assert hive.bodies[0]["health_status"] == "healthy"
        silent = [b for b in hive.bodies if b["health_status"] == "stalled"]
        assert silent[0]["engine_silence_seconds"] >= STALLED_AFTER_S / float(SPEED)
    assert server.lines[-1].startswith("error: ENGINE_STALLED: The engine has given no sign of ")


def slow(model: Path) -> None:
    """A step that computes for longer than the limit is waited for."""
    seconds = 1.5 * STALLED_AFTER_S / float(SPEED)
    with freezing(model, "busy", seconds=seconds) as server:
        answer = http.post(server.url + "/v1/completions", json=LONG_PROMPT, timeout=120)
        assert answer.status_code == 200
        assert "data: [DONE]" in answer.text
        assert health(server) == (200, "ok")
        server.process.terminate()
        left_with(server, 0)


def stopped(model: Path) -> None:
    """A worker that was stopped for longer than the limit goes on at SIGCONT."""
    with freezing(model, "never") as server:
        server.process.send_signal(signal.SIGSTOP)
        begun = time.monotonic()
        until(lambda: time.monotonic() - begun > 1.4 * STALLED_AFTER_S / float(SPEED))
        server.process.send_signal(signal.SIGCONT)
        assert server.post({"prompt": "a", "max_tokens": 2}).status_code == 200
        assert health(server) == (200, "ok")
        server.process.terminate()
        left_with(server, 0)


def told_to_stop(model: Path) -> None:
    """A frozen engine cannot end its step, and the worker leaves all the same."""
    with freezing(model, "step", "--drain-timeout", "0.1", speed="0.1") as server:
        request = Post(server, LONG_PROMPT)
        server.wait_until(slots_processing=1)
        server.process.terminate()
        assert request.result()[0] == 503
        left_with(server, 0)


def test_engines(tiny: Path) -> None:
    """A worker leaves when its engine is frozen, and stays when it is slow or was stopped."""
    checks: list[Callable[[Path], None]] = [
        partial(frozen, when="idle"),
        partial(frozen, when="step"),
        slow,
        stopped,
        told_to_stop,
    ]
    side_by_side(lambda check: check(tiny), checks)


def open_files() -> set[str]:
    """The numbers of this process's open files, where the system tells; the listing's own too."""
    folder = Path("/proc/self/fd")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_many_starts_and_kills(tiny: Path) -> None:
    """Workers that are killed or stopped at any moment leave no process, descriptor or port."""
    before = open_files()

    def check(number: int) -> None:
        # A load that lasts, or one that is over at once.
        env, step = ({"LOADED": str(tiny)}, 0.02) if number % 2 else (None, None)
        with starting("--model", tiny, "-t", "1", env=env, step_seconds=step) as server:
            if number % 4 > 1:
                server.wait_until_ready()
            if number % 8 > 3:
                server.process.kill()
                assert server.wait() == -signal.SIGKILL
            else:
                server.process.terminate()
                assert server.wait() == 0
            until(lambda: is_free(server.url))

    side_by_side(check, range(ROUNDS))
    assert open_files() <= before
