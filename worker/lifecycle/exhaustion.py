"""Errors of Python's own that mean: there is no memory."""

from __future__ import annotations

import errno

from worker.errors import DoesNotFitError

# How the loader of libraries and Python's threads say so, in errors that mean other things too.
_WORDS = ("cannot allocate memory", "failed to map segment", "can't start new thread")


def out_of_memory(error: BaseException) -> DoesNotFitError | None:
    """The error that a foreign one stands for, where memory ran out; else None."""
    said = str(error).lower()
    if (
        isinstance(error, MemoryError)
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, ImportError | RuntimeError) and any(w in said for w in _WORDS))
    ):
        return DoesNotFitError("Memory ran out.", hint="Free some, or raise the limit.")
    return None
