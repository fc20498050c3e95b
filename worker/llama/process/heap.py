"""What the C library does with memory that was freed."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
import time
from collections.abc import Generator

# malloc.h
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
# The largest that glibc takes for the second.
_KEPT_BLOCK = 32 << 20
_RETURNED_BLOCK = 128 << 10
# A look takes one to two milliseconds, for which a thread that needs memory may wait.
PERIOD_S = 20.0


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
    holes that nothing fits: with the demo model the worker held 236 MB where plan and budget allow
    166, and 176 with the border fixed.
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
