"""What is mapped into this process's memory; pages of files, given back."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

_MAPS = Path("/proc/self/maps")
_SHARED = b"r--s"  # how llama.cpp maps a file
_DONT_NEED = 4  # MADV_DONTNEED, mman.h


def maps() -> list[bytes]:
    """The lines of /proc/self/maps, without their ends; none where there is no such file.

    A file's name in them need not be text, and of what ends a line only a line feed is escaped.
    """
    try:
        return _MAPS.read_bytes().split(b"\n")[:-1]
    except OSError:  # not Linux, or a container without /proc
        return []


def give_back(paths: Iterable[str | Path]) -> None:
    """Let go of the pages that this process holds of its mappings of these files.

    What is used again comes back from the system's cache by itself. Of a Llama-1B Q4_K_M that is
    the embedding; all else was reordered into memory of its own. So a mapped file costs no more
    memory than one that was read.
    """
    lines = maps()
    if not lines:
        return
    inodes = {b"%d" % os.stat(path).st_ino for path in paths}  # noqa: PTH116  (text or Path)
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in lines:
        span, rights, _, _, inode = line.split(maxsplit=5)[:5]
        if rights == _SHARED and inode in inodes:
            start, stop = (int(place, 16) for place in span.split(b"-"))
            madvise(start, stop - start, _DONT_NEED)
