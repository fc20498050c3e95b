"""The processes of the benchmark: started by us, ended by their pid."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Generator, Sequence
from pathlib import Path

# A worker with the 1B shape takes 7 s on a virtual machine of two CPUs.
_SETTLES_S = 10.0
_END_TIMEOUT_S = 10.0
_SHOWN_LINES = 5


class PeerError(Exception):
    """A peer that does not start, or fails while it is measured."""


def environment() -> dict[str, str]:
    """Ours without OpenMP's variables: each peer runs with the waiting policy it chooses."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))
    }


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


@contextlib.contextmanager
def started(
    command: Sequence[str], log: Path, *, answers: bool = False, folder: Path | None = None
) -> Generator[subprocess.Popen[bytes]]:
    """Run a command with its output in `log`; its stdin ends with us.

    answers  stdout is a pipe to us and not in the log
    folder   to start in; None: ours
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else output,
            stderr=output,
            env=environment(),
            cwd=folder,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(_END_TIMEOUT_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def wait_until_settled(log: Path) -> None:
    """Wait until a worker says that its memory lies in large pages; of others, for _SETTLES_S."""
    ends = time.monotonic() + _SETTLES_S
    while "large pages" not in log.read_text(errors="replace") and time.monotonic() < ends:
        time.sleep(0.05)


def last_lines(log: Path) -> str:
    """The end of a log, for the error that it explains."""
    lines = log.read_text(errors="replace").strip().splitlines()
    return "\n".join(lines[-_SHOWN_LINES:])
