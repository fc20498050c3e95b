"""Files that are mapped into memory: their pages, given back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_SHARED = "r--s"  # how llama.cpp maps a file
_DONT_NEED = 4  # MADV_DONTNEED, mman.h


def give_back(paths: Iterable[str | Path]) -> None:
    """Let go of the pages that this process holds of its mappings of these files.

    What is used again comes back from the system's cache by itself. Of a Llama-1B Q4_K_M that is
    the embedding; all else was reordered into memory of its own. So a mapped file costs no more
    memory than one that was read.
    """
    if not _MAPS.exists():  # not Linux
        return
    inodes = {str(os.stat(path).st_ino) for path in paths}  # noqa: PTH116  (text or Path)
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in _MAPS.read_text().splitlines():
        span, rights, _, _, inode = line.split(maxsplit=5)[:5]
        if rights == _SHARED and inode in inodes:
            start, stop = (int(place, 16) for place in span.split("-"))
            madvise(start, stop - start, _DONT_NEED)
