"""Native threads that are woken on other CPUs than the thread that wakes them.

The system wakes a thread near its waker, now and then on the same CPU. Then two that wait for each
other share it, until the system moves one. On two CPUs the first step after some idle seconds took
27 ms instead of 14 (125M shape, 6 rows; medians of 8 workers).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Generator

TASKS = "/proc/self/task"


def native_threads() -> list[int]:
    """Ids of the process's threads that Python does not know: those of libgomp, and of drivers."""
    ours = {thread.native_id for thread in threading.enumerate()}
    return [task for task in map(int, os.listdir(TASKS)) if task not in ours]  # noqa: PTH208


@contextlib.contextmanager
def apart() -> Generator[None]:
    """Inside, native threads that wake do so on any CPU but this thread's.

    Only that one is kept from them, and only for one step: they may move as the system likes.
    Nothing happens where a system has no such calls, or one CPU.
    """
    changed: dict[int, set[int]] = {}
    # Not on macOS, and a sandbox may forbid it.
    with contextlib.suppress(AttributeError, OSError):
        here = {ctypes.CDLL(None).sched_getcpu()}
        for task in native_threads():
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                allowed = os.sched_getaffinity(task)
                if allowed - here:
                    os.sched_setaffinity(task, allowed - here)
                    changed[task] = allowed
    try:
        yield
    finally:
        for task, allowed in changed.items():
            with contextlib.suppress(OSError):
                os.sched_setaffinity(task, allowed)
