"""No process that a test has started outlives the process of the test, however that one ends."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

_MARK = "GGUF_WORKER_TESTED_BY"
_POLL_S = 0.1
# What no signal ends, such as a process in a system call of a broken disk, is left alone then.
_PATIENCE_S = 30.0

_watching: list[subprocess.Popen[bytes]] = []


def end_with_this_process() -> None:
    """Have everything killed that is started from here on, once this process is gone.

    Children inherit a mark in their environment. A process beside this one waits for its end, and
    then kills those that carry the mark, grandchildren among them. Linux's PR_SET_PDEATHSIG would
    end a child with the *thread* that started it, and tests start some in threads.

    Only Linux tells another process's environment; elsewhere nothing happens. A fork that runs no
    other program is not seen.
    """
    if sys.platform != "linux":
        return
    os.environ[_MARK] = mark = f"{os.getpid()}-{secrets.token_hex(8)}"
    _watching.append(
        subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid()), mark],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the tests
            env={},
        )
    )


def _marked(mark: str) -> list[int]:
    """The processes that carry a mark; those that have ended and wait for their parent do not."""
    sought, found = f"{_MARK}={mark}".encode(), list[int]()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            if sought in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def _main(parent: int, mark: str) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    deadline = time.monotonic() + _PATIENCE_S
    while (left := _marked(mark)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2])
