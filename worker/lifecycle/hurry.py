"""How Python behaves while the worker starts."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Generator

# Seconds after which a thread gives Python's lock away to one that waits for it.
_SHORT_INTERVAL_S = 0.0002


@contextlib.contextmanager
def in_a_hurry() -> Generator[None]:
    """Inside, modules are imported in one thread while native code calls back in another.

    Nothing of that is garbage: to look through it again and again takes a tenth of the imports'
    time, and afterwards it is never looked through again. llama.cpp calls for each tensor and each
    line of its log; by Python's default it would wait for 5 ms each time.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(_SHORT_INTERVAL_S)
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        sys.setswitchinterval(interval)
