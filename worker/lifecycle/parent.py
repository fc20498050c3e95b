"""Leaving with the parent: notice that the process that started this one is gone.

Linux's PR_SET_PDEATHSIG is no use: it fires when the parent's *thread* that started us ends, and
managers start workers from threads that come and go.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from worker import log
from worker.errors import UsageError

# Whoever started us; looked up at import, so that it is missed when it dies while we start.
PARENT = os.getppid()
# What the worker gets to end its streams; then it leaves, whatever it does.
LAST_WORDS_S = 1.0
_POLL_S = 0.1
_STDIN = 0


def watch(kind: str, on_death: Callable[[], None]) -> None:
    """Leave with 0 soon after the parent is gone; `on_death` is called first, in a thread.

    kind  process: when the parent process has died. A parent that dies before this process looks
          for the first time, within its first moments, is not noticed.
          stdin: when standard input ends. The pipe's other end is closed with the parent, however
          early that dies; what comes through it is ignored.

    Raises UsageError where the parent is in another PID namespace.
    """

    if kind == "process" and PARENT == 0:
        raise UsageError(
            "--die-with-parent cannot see a parent outside of this container.",
            hint="Use --die-with-parent stdin.",
        )

    def run() -> None:
        try:
            {"process": _wait_for_process, "stdin": _wait_for_stdin}[kind]()
            log.get("parent").warning("the parent is gone", watched=kind)
            on_death()
            time.sleep(LAST_WORDS_S)
        finally:  # a worker that nobody would stop any more must not stay
            os._exit(0)

    threading.Thread(target=run, name="parent", daemon=True).start()


def _wait_for_process() -> None:
    """Block until PARENT is no longer our parent."""
    while os.getppid() == PARENT:
        time.sleep(_POLL_S)


def _wait_for_stdin() -> None:
    try:
        while os.read(_STDIN, 4096):
            pass
    except OSError:  # closed, or a terminal that is gone
        return
