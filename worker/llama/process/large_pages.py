"""Memory of the model, moved into the processor's large pages.

A step reads all weights. In pages of 4 KiB the processor looks up a quarter of a million addresses
for each GB, in a virtual machine twice; in pages of 2 MiB 512.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from pathlib import Path

from worker.llama.process.mapping import maps

_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_COLLAPSE = 25  # MADV_COLLAPSE, mman.h; Linux 6.1
# Smaller parts of memory are no weights; Python's own come and go.
_LEAST = 32 << 20
_ANONYMOUS = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*")


def stretches(size: int) -> list[range]:
    """Addresses of memory that could lie in large pages, at most about `size` bytes each.

    Empty where the system has no large pages, or its owner has switched them off.
    """
    try:
        if "[never]" in (_SETTINGS / "enabled").read_text():
            return []
        large = int((_SETTINGS / "hpage_pmd_size").read_text())
    except (OSError, ValueError):
        return []
    step = max(size // large, 1) * large
    found: list[range] = []
    for match in filter(None, map(_ANONYMOUS.fullmatch, maps())):
        start, stop = int(match[1], 16), int(match[2], 16)
        if stop - start >= _LEAST:
            first, last = -(-start // large) * large, stop // large * large
            found += [range(at, min(at + step, last), large) for at in range(first, last, step)]
    return found


def collapse(stretch: range) -> int:
    """Move what is in memory as a whole, page by large page; returns the bytes that lie in them.

    What is in memory in part stays as it is: the rest would be filled. Python's lock is given away.
    """
    libc = ctypes.CDLL(None)
    length = ctypes.c_size_t(stretch.step)
    is_there = (ctypes.c_char * (stretch.step // mmap.PAGESIZE))()
    size = 0
    for address in stretch:
        start = ctypes.c_void_p(address)
        if not libc.mincore(start, length, is_there) and b"\0" not in is_there.raw:
            size += stretch.step * (not libc.madvise(start, length, _COLLAPSE))
    return size


def use() -> None:
    """Move all of it, before anything is measured."""
    for stretch in stretches(_LEAST):
        collapse(stretch)
