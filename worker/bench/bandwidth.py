"""How fast this machine reads memory, measured with numpy in several threads."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np

from worker import machine
from worker.bench.statistics import Figure, figure

# Each thread's, several times the largest caches; together at most a quarter of what is free.
_BYTES = 256 << 20
_ROUNDS = 5


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes a second that `threads` threads read together; caches are the last level's bytes."""

    threads: int
    nbytes: int
    per_s: Figure
    cache_bytes: int


def measure_bandwidth(threads: int) -> Bandwidth:
    """OR together arrays that no cache holds. The reduction lets go of the GIL."""
    each = min(_BYTES, machine.memory().available // (4 * threads)) & ~7
    arrays = [np.ones(each // 8, np.int64) for _ in range(threads)]
    total = each * threads
    speeds: list[float] = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_ROUNDS + 1):
            started = time.perf_counter()
            list(pool.map(np.bitwise_or.reduce, arrays))
            speeds.append(total / (time.perf_counter() - started))
    return Bandwidth(
        threads=threads, nbytes=total, per_s=figure(speeds[1:]), cache_bytes=_last_level_cache()
    )


def _last_level_cache() -> int:
    """Bytes of the largest cache of CPU 0; 0 where the system does not tell."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)
