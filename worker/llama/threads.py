"""How many compute threads are fastest: measured, because more is not always faster.

With a small model threads mostly wait for each other: the demo model computes a row in 0.25 ms with
one thread and in 0.65 ms with two. With a large model the memory is the limit, and often a few
threads already use all of its bandwidth. So half as many threads are tried, then half of those, as
long as fewer are faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_MAX_RUNS = 9
# Seconds to measure one number of threads, and all of them. A run that has begun is finished.
_EACH_S, _ALL_S = 0.1, 0.4
# Fewer threads must take at most this share of the time: idle threads may still help with prompts.
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
