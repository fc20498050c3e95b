"""Leaving with the parent: notice that the process that started this one is gone.

Linux's PR_SET_PDEATHSIG is no use: it fires when the parent's *thread* that started us ends, and
managers start workers from threads that come and go.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable

from worker import log
from worker.errors import UsageError

# Whoever started us; looked up at import, so that it is missed when it dies while we start.
PARENT = os.getppid()
# What the worker gets to end its streams; then it leaves, whatever it does.
LAST_WORDS_S = 1.0
_POLL_S = 0.5
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
    if sys.platform == "linux":
        _wait_for_pidfd()
    elif sys.platform == "darwin":
        _wait_for_kqueue()
    while os.getppid() == PARENT:  # kernels before 5.3, and what forbids the above
        time.sleep(_POLL_S)


if sys.platform == "linux":

    def _wait_for_pidfd() -> None:
        try:
            parent = os.pidfd_open(PARENT)
        except OSError:  # gone already, or not allowed: our parent's number tells which
            return
        # If it died before the call above, another process may have its number by now.
        if os.getppid() == PARENT:
            poll = select.poll()
            poll.register(parent, select.POLLIN)
            poll.poll()
        os.close(parent)


if sys.platform == "darwin":

    def _wait_for_kqueue() -> None:
        queue = select.kqueue()
        flags = select.KQ_EV_ADD | select.KQ_EV_ONESHOT
        exits = select.kevent(PARENT, select.KQ_FILTER_PROC, flags, select.KQ_NOTE_EXIT)
        try:
            if os.getppid() == PARENT:
                queue.control([exits], 1, None)
        except OSError:  # gone already
            return
        finally:
            queue.close()


def _wait_for_stdin() -> None:
    try:
        while os.read(_STDIN, 4096):
            pass
    except OSError:  # closed, or a terminal that is gone
        return
