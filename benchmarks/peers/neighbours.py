"""Other processes: one that we start to be in the way, and the ones that are in our way."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


@contextlib.contextmanager
def busy_neighbour() -> Generator[None]:
    """A process that computes all the time, on whichever core it is put."""
    command = [sys.executable, "-c", "while True: pass"]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()


class ForeignLoad:
    """CPUs that others used since it was made: other processes, and other machines on the host.

    Children count as ours once they have ended, so ask after the peers are gone.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy, self._own = _busy_s(), _own_s()

    def cpus(self) -> float | None:
        """The mean; None on a system without /proc/stat."""
        busy = _busy_s()
        if busy is None or self._busy is None:
            return None
        foreign = (busy - self._busy) - (_own_s() - self._own)
        return max(0.0, foreign) / max(time.monotonic() - self._started, 1e-9)


def _busy_s() -> float | None:
    """CPU seconds that the machine has spent on anything, time stolen by its host included."""
    try:
        first = _STAT.read_text().partition("\n")[0]
    except OSError:
        return None
    ticks = [int(field) for field in first.split()[1 : _STEAL + 2]]
    return (sum(ticks) - ticks[_IDLE] - ticks[_IOWAIT]) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
