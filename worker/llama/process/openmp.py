"""How many threads OpenMP gives to a step: the user's variables may forbid some.

llama.cpp asks for a team and computes with what it gets, so only OpenMP itself knows.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path

from worker.llama.process.mapping import maps

_RUNTIMES = ("libgomp", "libomp", "libiomp5")
_PREFIXES = ("OMP_", "GOMP_", "KMP_")


def runtime(*names: str) -> ctypes.CDLL | None:
    """OpenMP as it is loaded in this process, of those names or of any; None where it is not."""
    for line in maps():
        path = os.fsdecode(line.split(maxsplit=5)[-1])
        if Path(path).name.startswith(names or _RUNTIMES):
            return ctypes.CDLL(path)
    return None


def granted(threads: int) -> int:
    """How many of so many compute threads a step gets, at least 1."""
    openmp = runtime()
    if openmp is None:
        return threads
    most = openmp.omp_get_thread_limit() if openmp.omp_get_max_active_levels() else 1
    places = openmp.omp_get_num_places()
    if places:  # CPUs that threads are bound to; with more threads than CPUs llama.cpp can hang
        most = min(most, sum(map(openmp.omp_get_place_num_procs, range(places))))
    return max(1, min(threads, most))


def variables(environ: Mapping[str, str] = os.environ) -> str:
    """What the user told OpenMP: `OMP_THREAD_LIMIT=1 OMP_PLACES={0}`, or nothing."""
    found = [name for name in sorted(environ) if name.startswith(_PREFIXES)]
    return " ".join(f"{name}={environ[name]}" for name in found)
