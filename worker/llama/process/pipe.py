"""Writing to a pipe without giving Python's lock away."""

from __future__ import annotations

import ctypes

_write = ctypes.PyDLL(None).write
_write.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
_write.restype = ctypes.c_ssize_t


def write(descriptor: int, data: bytes) -> int:
    """Bytes written, or -1. The descriptor must not block.

    `os.write` gives the lock away; whom the byte wakes takes it, and the writer waits to get it
    back.
    """
    return _write(descriptor, data, len(data))
