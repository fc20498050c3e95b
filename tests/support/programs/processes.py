"""Real worker processes for the tests: started on a free port, always ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx

from tests.support import http
from tests.support.programs.forked import ForkedProcess

# How long anything is waited for. No test measures by it: a machine may be busy.
PATIENCE_S = 60.0

_Case = TypeVar("_Case")


def failure_of(line: str) -> str | None:
    """`error: CODE: sentence` of a log line in JSON that has it."""
    with contextlib.suppress(ValueError, AttributeError):
        event = str(json.loads(line).get("event"))
        return event if event.startswith("error: ") else None
    return None


class WorkerProcess:
    """`python -m worker` with its stderr read line by line (JSON log lines, or prose).

    Of the line with which it fails `lines` has the text alone.
    """

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        module: str = "worker",
        command: list[str] | None = None,
        forked: bool = False,
    ) -> None:
        """env: variables to add to ours; module: another program that behaves like a worker;
        command: another way to start one; forked: sooner, see `forked.py`."""
        variables = {**os.environ, **(env or {})}
        self.process: subprocess.Popen[str] | ForkedProcess
        if forked:
            self.process = ForkedProcess(module, arguments, variables)
        else:
            self.process = subprocess.Popen(
                [*(command or [sys.executable, "-m", module]), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=variables,
            )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(failure_of(line) or line.rstrip("\n"))
            self._new.put(line)
        self._new.put(None)

    def wait_for(self, event: str) -> dict[str, Any]:
        """The first log entry with this event. Fails when the process ends or time is up."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._new.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {event!r} in time: {self.lines}") from None
            if line is None:
                raise AssertionError(f"ended without {event!r}: {self.lines}")
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == event:
                    return entry

    def logged(self, event: str) -> dict[str, Any]:
        """The first log entry with this event among the lines so far."""
        for line in list(self.lines):
            with contextlib.suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if entry.get("event") == event:
                    return entry
        raise AssertionError(f"no {event!r}: {self.lines}")

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """The exit code, once it has ended by itself; stderr is complete afterwards."""
        code = self.process.wait(seconds)
        self._reader.join(5)
        return code

    def end(self) -> None:
        """Kill what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(5)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Server(WorkerProcess):
    """A worker that serves; `url` and `pid` are known when the socket is bound."""

    def __init__(
        self,
        *arguments: str,
        env: dict[str, str] | None = None,
        module: str = "worker",
        step_seconds: float | None = None,
        forked: bool = False,
    ) -> None:
        """step_seconds: each step takes so long at least, see `slow.py`."""
        if step_seconds is not None:
            module = "tests.support.programs.slow"
            env = {**(env or {}), "STEP_SECONDS": str(step_seconds)}
        # The models are so small that a second thread only waits for the first.
        options = ("--port", "0", "--log-format", "json", "-t", "1")
        super().__init__("serve", *options, *arguments, env=env, module=module, forked=forked)
        try:
            listening = self.wait_for("listening")
            self.url, self.pid = str(listening["url"]), int(listening["pid"])
        except BaseException:
            self.end()
            raise

    @classmethod
    def over(cls, process: WorkerProcess) -> Server:
        """A process that was started as one, and has become ready."""
        server = cls.__new__(cls)
        server.__dict__ = process.__dict__
        listening = process.logged("listening")
        server.url, server.pid = str(listening["url"]), int(listening["pid"])
        return server

    def wait_until_ready(self) -> Server:
        """Block until the model is loaded."""
        self.wait_for("ready")
        return self

    def post(self, body: object, path: str = "/v1/completions") -> httpx.Response:
        """POST JSON and return the answer, whatever its status."""
        return http.post(self.url + path, json=body)

    def health(self) -> dict[str, Any]:
        """GET /health."""
        return http.get(self.url + "/health").json()

    def wait_until(self, **expected: object) -> dict[str, Any]:
        """Poll /health until it says what is expected; the answer."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            health = self.health()
            if all(health[key] == value for key, value in expected.items()):
                return health
            assert time.monotonic() < deadline, f"{health} never became {expected}"
            time.sleep(0.01)


@contextlib.contextmanager
def starting(
    *arguments: str | Path,
    env: dict[str, str] | None = None,
    module: str = "worker",
    step_seconds: float | None = None,
    forked: bool | None = None,
) -> Generator[Server]:
    """A server that listens and loads its model; gone afterwards.

    forked: see `forked.py`; not said, it is where `env` and `module` cannot change what is imported
    """
    if forked is None:
        forked = module == "worker" and (env is None or step_seconds is not None)
    server = Server(
        *map(str, arguments),
        env=env,
        module=module,
        step_seconds=step_seconds,
        forked=forked and sys.platform == "linux",
    )
    try:
        yield server
    finally:
        server.end()


@contextlib.contextmanager
def serving(
    *arguments: str | Path,
    env: dict[str, str] | None = None,
    module: str = "worker",
    step_seconds: float | None = None,
    forked: bool | None = None,
) -> Generator[Server]:
    """A ready server that is gone afterwards."""
    with starting(
        *arguments, env=env, module=module, step_seconds=step_seconds, forked=forked
    ) as server:
        yield server.wait_until_ready()


def guessing(*arguments: str | Path) -> contextlib.AbstractContextManager[Server]:
    """A ready server that takes guesses for free, so that it makes them however busy the machine
    is."""
    return serving(*arguments, step_seconds=0, env={"FREE_GUESSES": "1"})


def ended(
    *arguments: str | Path, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself, forked as in `forked.py`; env: all its variables, or ours."""
    command = [sys.executable, "-m", "worker", *map(str, arguments)]
    if sys.platform != "linux":
        return subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, env=env, check=False
        )
    process = ForkedProcess("worker", tuple(command[3:]), env or dict(os.environ))
    with process.stdout, process.stderr, ThreadPoolExecutor(2) as pool:
        said, prose = pool.submit(process.stdout.read), pool.submit(process.stderr.read)
        try:
            code = process.wait(PATIENCE_S)
        finally:
            process.kill()
        return subprocess.CompletedProcess(command, code, said.result(), prose.result())


def became_ready(process: WorkerProcess) -> bool:
    """Wait until a worker is ready or has ended: which of both."""
    try:
        process.wait_for("ready")
    except AssertionError:
        process.wait()
        return False
    return True


def until(true: Callable[[], bool], seconds: float = PATIENCE_S) -> None:
    """Poll until `true()`; fails when time is up."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never became true"
        time.sleep(0.02)


def side_by_side(check: Callable[[_Case], None], cases: Iterable[_Case]) -> None:
    """`check` each case, some at a time: processes spend most of their lives waiting."""
    with ThreadPoolExecutor(8) as pool:
        running = [(case, pool.submit(check, case)) for case in cases]
    for case, done in running:
        if error := done.exception():
            error.add_note(f"in the case {case!r}")
            raise error
