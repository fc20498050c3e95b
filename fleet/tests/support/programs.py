"""Real workers and commands for the tests: started on a free port, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from tests.support import http

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0  # no test measures by it: a machine may be busy
WORKER = ("-m", "worker")
_PROGRAMS = ROOT / "tests" / "support" / "programs"
# Of the worker's own tests: one whose steps take $STEP_SECONDS, one on a machine with a GPU.
SLOW = (str(_PROGRAMS / "slow.py"),)
WITH_GPU = (str(_PROGRAMS / "with_gpu.py"),)


def until(true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Poll until `true()`; fails when time is up."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


class Program:
    """A process of this Python whose standard error is read line by line."""

    def __init__(self, *words: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *words],
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | (env or {}),
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))

    def logged(self, event: str) -> dict[str, Any] | None:
        """The first log entry with this event among the lines so far."""
        for line in list(self.lines):
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == event:
                    return entry
        return None

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The exit code, once it has ended by itself."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def end(self) -> None:
        """Kill what is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait(10)
        assert self.process.stderr is not None
        self.process.stderr.close()


class Server(Program):
    """A worker that is ready."""

    def __init__(self, *options: str, env: dict[str, str], step_seconds: float | None) -> None:
        """step_seconds: each step takes so long at least"""
        command = WORKER if step_seconds is None else SLOW
        env = env | {"STEP_SECONDS": str(step_seconds)}
        super().__init__(
            *command, "serve", "--port", "0", "--log-format", "json", *options, env=env
        )
        try:
            until(lambda: self.logged("ready") is not None or self.process.poll() is not None)
            listening = self.logged("listening")
            assert listening is not None, self.lines
            self.url, self.pid = str(listening["url"]), int(listening["pid"])
        except BaseException:
            self.end()
            raise

    def wait_until(self, **expected: object) -> None:
        """Poll /health until it says what is expected."""

        def says() -> bool:
            health = http.get(self.url + "/health").json()
            return all(health[key] == value for key, value in expected.items())

        until(says)


@contextlib.contextmanager
def serving(
    *options: str, env: dict[str, str] | None = None, step_seconds: float | None = None
) -> Generator[Server]:
    """A ready worker that is gone afterwards."""
    server = Server(*options, env=env or {}, step_seconds=step_seconds)
    try:
        yield server
    finally:
        server.end()


def demo_model() -> Path:
    """The worker's own."""
    return next((ROOT / "worker" / "demo").glob("*.gguf"))


def written_model(function: str, path: Path, **sizes: int) -> str:
    """A small GGUF file of the worker's own tests."""
    code = (
        "import sys; from pathlib import Path; from tests.support.models import ggufs;"
        f"ggufs.{function}(Path(sys.argv[1]), **{sizes})"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(path)], cwd=ROOT, check=True, timeout=PATIENCE_S
    )
    return str(path)
