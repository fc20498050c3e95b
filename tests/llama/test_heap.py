"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import sys

import pytest

from benchmarks.constraints.churn import anonymous
from worker.llama.process.heap import return_pages

pytestmark = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "malloc_trim") or not sys.platform.startswith("linux"),
    reason="a C library that cannot give pages back",
)
_BLOCK, _COUNT = 50_000, 2_000


def test_pages_between_blocks_go_back() -> None:
    """What lies in front of a block that is in use too."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    blocks = [libc.malloc(_BLOCK) for _ in range(_COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, _BLOCK)
    full = anonymous()
    for block in blocks[:-1]:
        libc.free(block)
    held = anonymous()
    return_pages()
    left = anonymous()
    libc.free(blocks[-1])
    assert held > full - 0.2 * _BLOCK * _COUNT  # glibc keeps it
    assert left < full - 0.8 * _BLOCK * _COUNT
