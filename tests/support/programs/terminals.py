"""A program in a pseudo-terminal of its own: what it draws, and keys for it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Generator
from typing import Any

from tests.support.programs.processes import PATIENCE_S

_SEQUENCE = re.compile(rb"\x1b(\[[0-9;?]*[a-zA-Z]|[()][A-Z0-9]|[=>])")
ALTERNATE, NORMAL = b"\x1b[?1049h", b"\x1b[?1049l"


class Terminal:
    """The outer end of a pseudo-terminal, in which `process` runs.

    output  all bytes that were drawn
    """

    def __init__(self, process: subprocess.Popen[bytes], outer: int, inner: int) -> None:
        self.process, self.outer, self.inner = process, outer, inner
        self.output = b""
        self.before = self.mode

    @property
    def mode(self) -> list[Any]:
        """The terminal's settings, as the program left them."""
        return termios.tcgetattr(self.inner)

    @property
    def text(self) -> str:
        """What was drawn, without control sequences."""
        return _SEQUENCE.sub(b"", self.output).decode(errors="replace")

    @property
    def frame(self) -> list[str]:
        """The lines of the last whole screen."""
        drawn = self.output.split(b"\x1b[H")[-2]
        return _SEQUENCE.sub(b"", drawn).decode().replace("\r", "").split("\n")

    def resize(self, columns: int, lines: int) -> None:
        """Another size."""
        fcntl.ioctl(self.outer, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.outer, keys)

    def wait_for(self, is_there: Callable[[str], object], *, anew: bool = False) -> None:
        """Read until the text says so. anew: forget what was drawn before."""
        if anew:
            self.output = b""
        deadline = time.monotonic() + PATIENCE_S
        while not is_there(self.text):
            left = deadline - time.monotonic()
            assert left > 0, self.text[-4000:]
            self._read(left)

    def leave(self) -> int:
        """The exit code, once it has ended."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text[-4000:]
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.returncode

    def _read(self, seconds: float) -> bool:
        if not select.select([self.outer], [], [], seconds)[0]:
            return False
        self.output += os.read(self.outer, 1 << 16)
        return True


@contextlib.contextmanager
def terminal(*words: str, columns: int = 80, lines: int = 24, **more: str) -> Generator[Terminal]:
    """`worker WORDS` in a terminal of that size, which is its controlling one."""
    outer, inner = pty.openpty()
    fcntl.ioctl(outer, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    hidden = ("COLUMNS", "LINES", "NO_COLOR", "LLAMA_API_KEY")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    # The first terminal that the leader of a session opens becomes its controlling one.
    opening = f'exec "$@" <{os.ttyname(inner)} >{os.ttyname(inner)} 2>&1'
    process = subprocess.Popen(
        ["sh", "-c", opening, "sh", sys.executable, "-m", "worker", *words],
        start_new_session=True, env={**env, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **more},
    )  # fmt: skip
    try:
        yield Terminal(process, outer, inner)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(outer)
        os.close(inner)
