"""Memory that was freed goes back to the system."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

from benchmarks.constraints.churn import anonymous
from worker.llama.process.memory import return_pages

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


_THREADS = """
import ctypes, sys, threading
from worker.llama.process import memory

if sys.argv[1] == "shared":
    memory.share_one()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
threads = [threading.Thread(target=libc.malloc, args=(5_000,)) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.malloc_info(0, ctypes.c_void_p(libc.fdopen(1, b"w")))
libc.fflush(None)
"""


@pytest.mark.parametrize(("how", "shares"), [("shared", True), ("as it was", False)])
def test_threads_share_a_heap(how: str, shares: bool) -> None:
    """All threads take from one, and only where that was asked for."""
    command = [sys.executable, "-c", _THREADS, how]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert (told.count("<heap ") == 1) is shares
