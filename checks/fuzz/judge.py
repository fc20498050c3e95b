"""A child process that may die: the parent's side."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO

import msgspec

from checks.fuzz.verdict import Verdict
from tests.support.models.native import ending, pipe

PATIENCE_S = 120.0  # of the clock, for a child that waits for ever; one that computes ends sooner
# Words of the line by which native code says why it dies.
_TELLING = ("GGML_ASSERT", "GGML_ABORT", "fatal error", "what():", "terminate called", "libgomp")


class FuzzJudge:
    """A child that is used again and again, and replaced where a file ended it.

    num_children  how many there were
    since         files that the child of the last verdict had seen
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None
        self._said: IO[bytes] | None = None
        self.num_children = 0
        self.since = 0

    def judge(self, path: Path, *, fresh: bool = False) -> Verdict:
        """Check the file and, where it is accepted, run it. fresh: in a new child."""
        if fresh:
            self.close()
        child = self._child or self._start()
        stdin, stdout = pipe(child.stdin), pipe(child.stdout)
        self.since += 1
        try:
            stdin.write(f"{path}\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        line = _line(stdout)
        if line is None:
            child.kill()
            return self._ended("hung")
        if not line:
            return self._ended("died")
        return msgspec.json.decode(line, type=Verdict)

    def _ended(self, how: str) -> Verdict:
        assert self._child is not None
        code = self._child.wait()
        pipe(self._child.stdin).close()
        pipe(self._child.stdout).close()
        self._child = None
        name = ending(code)
        if name == "SIGXCPU":
            how = "hung"
        return Verdict("hung" if how == "hung" else "died", name, self._last_words())

    def _last_words(self) -> str:
        """What native code printed before it died: the assertion that failed, or the last line."""
        assert self._said is not None
        with self._said as said:
            said.seek(0, os.SEEK_END)
            said.seek(max(0, said.tell() - 4096))
            lines = said.read().decode(errors="replace").splitlines()
        telling = [line for line in lines if any(word in line for word in _TELLING)]
        return (telling or lines or [""])[-1].rpartition("llama.cpp/")[2][:200]

    def _start(self) -> subprocess.Popen[str]:
        self.num_children += 1
        self.since = 0
        self._said = tempfile.TemporaryFile()  # noqa: SIM115  (it lives as long as the child)
        self._child = subprocess.Popen(
            [sys.executable, "-m", "checks.fuzz.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "GGML_NO_BACKTRACE": "1", "MALLOC_PERTURB_": "165"},
        )
        return self._child

    def close(self) -> None:
        """End the child."""
        child, self._child = self._child, None
        if child is not None:
            pipe(child.stdin).close()
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            pipe(child.stdout).close()
            if self._said is not None:
                self._said.close()


def _line(stdout: IO[str]) -> str | None:
    """The child's next line; empty: it has ended; None: it says nothing."""
    with selectors.DefaultSelector() as waiting:
        waiting.register(stdout, selectors.EVENT_READ)
        if not waiting.select(PATIENCE_S):
            return None
    return stdout.readline()
