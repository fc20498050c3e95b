"""The weights' memory, asked for in the processor's large pages before they are read into it.

A step reads all weights. In pages of 4 KiB the processor looks up a quarter of a million addresses
for each GB, in a virtual machine twice; in pages of 2 MiB 512.
"""

from __future__ import annotations

import ctypes
import re

from worker.llama.process.mapping import maps

_HUGE = 14  # MADV_HUGEPAGE, mman.h
# Smaller parts of memory are no weights; Python's own come and go.
_LEAST = 32 << 20
_ANONYMOUS = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*")


def ask() -> None:
    """Have the system fill large anonymous memory of this process with large pages from now on.

    What is there already stays as it is. Nothing happens where the system has no such pages, or
    its owner has switched them off.
    """
    for match in filter(None, map(_ANONYMOUS.fullmatch, maps())):
        start, stop = int(match[1], 16), int(match[2], 16)
        if stop - start >= _LEAST:
            ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), _HUGE)
