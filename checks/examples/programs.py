"""Other people's programs in the tests: started, read line by line, asked under load, ended."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

import httpx
import openai
import pytest

from tests.support import http
from tests.support.programs.processes import PATIENCE_S, until
from worker.demo import MODEL_PATH

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"
SLOW = Path(__file__).parent / "slow"
MODEL = MODEL_PATH.stem


class Program:
    """A process with its output, and that of all that it starts, read line by line.

    As a context it is killed at the end; what it started must leave by itself.

    lines  both streams, as they came
    """

    def __init__(
        self,
        *command: str | Path,
        env: dict[str, str] | None = None,
        step_seconds: float | None = None,
    ) -> None:
        """env: variables to add to ours; step_seconds: a worker's step takes so long at least.

        `worker` is found beside the interpreter, or is the one of tests/support/programs/slow.py.
        """
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        if step_seconds is not None:
            path = os.pathsep.join([str(SLOW), path])
            env = {**(env or {}), "STEP_SECONDS": str(step_seconds)}
        self.process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PATH": path, **(env or {})},
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._new: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            self._new.put(line.rstrip("\n"))
        self._new.put(None)

    def wait_for(self, pattern: str, seconds: float = PATIENCE_S) -> re.Match[str]:
        """The next line with a match. Fails when all have ended or time is up."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                line = self._new.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {pattern!r} in time: {self.lines[-50:]}") from None
            if line is None:
                raise AssertionError(f"ended without {pattern!r}: {self.lines[-50:]}")
            if found := re.search(pattern, line):
                return found

    def wait(self, seconds: float = PATIENCE_S) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(seconds)

    def wait_until_silent(self) -> None:
        """Until nobody holds its output any more: neither it nor anything that it started."""
        self._reader.join(PATIENCE_S)
        assert not self._reader.is_alive(), "something that it started is still there"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Kill what is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        self._reader.join(10)
        if not self._reader.is_alive():
            assert self.process.stdout is not None
            self.process.stdout.close()


def command(name: str, where: str = "`make check SUITE=managers` installs it") -> str:
    """The path of a program that is not ours; the test is skipped where it is not installed."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on the PATH: {where}")
    return found


def free_ports(count: int) -> list[int]:
    """Ports in a row that nobody listens on now."""
    for _ in range(100):
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return list(range(first, first + count))
    raise AssertionError(f"there are no {count} free ports in a row")


def is_running(pid: int) -> bool:
    """Whether the process lives; one that is dead and not yet collected does not."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except FileNotFoundError:  # a system without /proc, or it has just ended
        return not Path("/proc/self/stat").exists()
    return state != "Z"


def is_serving(url: str) -> bool:
    """Whether a worker there says that it is ready."""
    with contextlib.suppress(httpx.HTTPError):
        return http.get(url + "/health", timeout=2).status_code == 200
    return False


def count_running(url: str) -> int:
    """Sequences that a worker computes now."""
    return int(http.get(url + "/health").json()["slots_processing"])


def client(url: str, key: str) -> openai.OpenAI:
    """The official client, without second tries."""
    return openai.OpenAI(base_url=url + "/v1", api_key=key, max_retries=0, timeout=PATIENCE_S)


class Load:
    """Clients that ask for short completions without a pause and without a second try.

    answered  how many answers came, complete
    errors    whatever went wrong
    """

    def __init__(
        self, url: str, *, clients: int = 3, model: str = MODEL, key: str = "unused"
    ) -> None:
        self.answered = 0
        self.errors: list[Exception] = []
        self._ended = threading.Event()
        self._client = client(url, key)
        self._model = model
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        while not self._ended.is_set() and len(self.errors) < 10:
            try:
                answer = self._client.completions.create(
                    model=self._model, prompt="Once", max_tokens=20
                )
                assert answer.choices[0].finish_reason in ("length", "stop")
                self.answered += 1
            except Exception as error:  # noqa: BLE001  (the test looks at them)
                self.errors.append(error)

    def goes_on(self, count: int = 20) -> None:
        """Wait for so many more answers; fails with the first error."""
        goal = self.answered + count
        until(lambda: self.answered >= goal or bool(self.errors))
        assert not self.errors, self.errors

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._client.close()


class Reader:
    """One long stream, read in a thread; it has begun when this is there.

    parts  texts, as they came
    """

    def __init__(
        self, url: str, *, tokens: int = 1_900, model: str = MODEL, key: str = "unused"
    ) -> None:
        self.parts: list[str] = []
        self._end: str | Exception | None = None
        self._client = client(url, key)
        threading.Thread(target=self._read, args=(model, tokens), daemon=True).start()
        until(lambda: bool(self.parts) or self._end is not None)

    def _read(self, model: str, tokens: int) -> None:
        reason: str | None = None
        try:
            for chunk in self._client.completions.create(
                model=model,
                prompt="Once",
                max_tokens=tokens,
                stream=True,
                extra_body={"ignore_eos": True},
            ):
                if chunk.choices:
                    self.parts.append(chunk.choices[0].text)
                    reason = chunk.choices[0].finish_reason or reason
            self._end = reason or EOFError("the stream ended without a reason")
        except Exception as error:  # noqa: BLE001  (the test looks at it)
            self._end = error
        finally:
            self._client.close()

    def result(self) -> str | Exception:
        """The finish reason, or what cut it off, once it is over."""
        until(lambda: self._end is not None)
        assert self._end is not None
        return self._end
