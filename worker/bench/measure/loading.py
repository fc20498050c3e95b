"""How long a file takes to load: from the disk, and from the system's cache."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from worker.bench.figures import figure
from worker.bench.sections import LoadTimes

_PROBES = 256


def measure_loading(
    files: list[Path], load: Callable[[], None], repetitions: int, tick: Callable[[], None]
) -> LoadTimes:
    """Time `load`, which loads and frees the model: first with its files dropped from the
    system's cache, then with its files read into it. `tick` is called after each load."""
    cold: list[float] = []
    gone: list[float] = []
    for _ in range(repetitions):
        share = drop(files)
        if share is None:
            break
        gone.append(share)
        cold.append(_time(load))
        tick()
    _read(files)
    warm: list[float] = []
    for _ in range(repetitions):
        warm.append(_time(load))
        tick()
    dropped = min(gone) if gone else None
    return LoadTimes(cold=figure(cold) if dropped else None, dropped=dropped, warm=figure(warm))


def drop(files: Iterable[Path]) -> float | None:
    """Ask the system to forget its copy of the files; the share that is gone, None: unknown.

    Pages stay that another process maps or that are not written yet. A virtual machine's host may
    still hold the file; that cannot be seen from here.
    """
    if not hasattr(os, "posix_fadvise"):
        return None
    shares: list[float] = []
    for path in files:
        with path.open("rb") as file:
            fd = file.fileno()
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # probing must not read ahead
            share = _absent(fd, path.stat().st_size)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        if share is None:
            return None
        shares.append(share)
    return min(shares)


def _absent(fd: int, size: int) -> float | None:
    """The share of probed places that are not in the cache; None: the system does not tell."""
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    absent = 0
    step = max(1, size // _PROBES)
    places = range(0, size, step)
    for place in places:
        try:
            os.preadv(fd, [bytearray(1)], place, os.RWF_NOWAIT)
        except BlockingIOError:
            absent += 1
        except OSError:  # a file system that does not know the flag
            return None
    return absent / len(places)


def _read(files: Iterable[Path]) -> None:
    """Put the files into the system's cache."""
    buffer = bytearray(8 << 20)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _time(load: Callable[[], None]) -> float:
    started = time.perf_counter()
    load()
    return time.perf_counter() - started
