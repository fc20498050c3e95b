"""How many compute threads are fastest: measured, because more is not always faster.

A small model spends more time at its barriers than between them: the demo model computes a row in
0.25 ms with one thread and in 0.65 ms with two. A large one is bound by memory, which fewer threads
than CPUs often fill. So halves of the CPUs are tried for as long as fewer are faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_MAX_RUNS = 9
# Seconds spent on one number of threads, and on all of them; a run that has begun ends.
_EACH_S, _ALL_S = 0.1, 0.4
# Fewer threads must be this much faster: what is idle now may help when prompts arrive.
_GAIN = 0.95


def fastest_threads(limit: int, measure: Callable[[int], float]) -> int:
    """The best of limit, limit / 2, ... 1, where `measure` gives the seconds of a run."""
    begun = time.monotonic()
    best, best_s = limit, _median(limit, measure)
    candidate = limit // 2
    while candidate >= 1 and time.monotonic() - begun < _ALL_S:
        seconds = _median(candidate, measure)
        if seconds > best_s * _GAIN:
            break
        best, best_s = candidate, seconds
        candidate //= 2
    return best


def _median(threads: int, measure: Callable[[int], float]) -> float:
    measure(threads)  # the first run forms the team
    begun, runs = time.monotonic(), list[float]()
    while not runs or (len(runs) < _MAX_RUNS and time.monotonic() - begun < _EACH_S):
        runs.append(measure(threads))
    return statistics.median(runs)
