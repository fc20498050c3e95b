"""The end of the process. Imported before anything else, so it imports next to nothing."""

from __future__ import annotations

import os
import signal
import sys
import threading


def stop_signals() -> tuple[signal.Signals, ...]:
    """The signals that ask a worker to stop; SIGHUP is none where it is ignored, as by nohup."""
    asked = (signal.SIGTERM, signal.SIGINT)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return asked
    return (*asked, signal.SIGHUP)


def leave_when_told() -> None:
    """From now on those signals end the process at once, with 0."""
    for number in stop_signals():
        signal.signal(number, _leave_now)


def _leave_now(_number: int, _frame: object) -> None:
    os._exit(0)


def leave(code: int) -> None:
    """Exit with `code`, never to return; at once where another thread still runs.

    Such a thread (a step, a load or a prompt that was given up) would be waited for, or would crash
    beside the interpreter's clean-up.
    """
    failed = False
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            failed = failed or stream is sys.stdout
    code = code or int(failed)
    if failed or threading.active_count() > 1:
        os._exit(code)
    sys.exit(code)
