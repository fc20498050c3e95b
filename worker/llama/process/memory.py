"""Memory of this process: its heap, files that are mapped into it, the processor's large pages."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import os
import re
import threading
import time
from collections.abc import Generator, Iterable
from pathlib import Path

# malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# The largest that glibc takes for the second.
_KEPT_BLOCK = 32 << 20
_RETURNED_BLOCK = 128 << 10
# A look takes one to two milliseconds, for which a thread that needs memory may wait.
PERIOD_S = 20.0
_MAPS = Path("/proc/self/maps")
_SHARED = b"r--s"  # how llama.cpp maps a file
_DONT_NEED = 4  # MADV_DONTNEED, mman.h
_SETTINGS = Path("/sys/kernel/mm/transparent_hugepage")
_COLLAPSE = 25  # MADV_COLLAPSE, mman.h; Linux 6.1
# Smaller parts of memory are no weights; Python's own come and go.
_LEAST = 32 << 20
_ANONYMOUS = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ \S+ 0\s*")


def share_one() -> None:
    """All threads take from one heap, if none was started yet.

    glibc makes one for each thread, up to eight for each CPU, and each keeps holes of its own.
    """
    _set(_M_ARENA_MAX, 1)


@contextlib.contextmanager
def blocks_kept() -> Generator[None]:
    """Inside, freed blocks are used again; afterwards they go back to the system.

    llama.cpp reads a tensor that it repacks into a block of its own. Where each such block is
    fresh from the system, its pages are filled with zeros first: to load a Llama-1B Q4_K_M of
    0.68 GB then takes 1.9 s of CPU time instead of 1.0.
    """
    _set(_M_MMAP_THRESHOLD, _KEPT_BLOCK)
    _set(_M_TRIM_THRESHOLD, 2 * _KEPT_BLOCK)
    try:
        yield
    finally:
        return_blocks()
        return_pages()


def return_blocks() -> None:
    """Let the C library give each freed block of 128 KiB or more back to the system.

    glibc raises that border to 32 MiB as such blocks are freed. Then kept states that leave make
    holes that nothing fits, and the worker holds more than plan and budget allow.
    """
    _set(_M_MMAP_THRESHOLD, _RETURNED_BLOCK)
    _set(_M_TRIM_THRESHOLD, _RETURNED_BLOCK)


def return_pages() -> None:
    """Give whole free pages between blocks that are in use back to the system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)


@functools.cache
def stay_small() -> None:
    """From now on `return_pages` every PERIOD_S, in a thread that ends with the process.

    glibc itself gives back only what lies at the end of a heap, which keeps the most that it ever
    needed.
    """

    def work() -> None:
        while True:
            time.sleep(PERIOD_S)
            return_pages()

    threading.Thread(target=work, name="heap", daemon=True).start()


def _set(option: int, value: int) -> None:
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # only there are such options
        libc.mallopt(option, value)


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


def use_large_pages() -> None:
    """Move all of it, before anything is measured."""
    for stretch in stretches(_LEAST):
        collapse(stretch)
