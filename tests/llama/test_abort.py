"""An assertion of llama.cpp that does not hold: the worker says so and leaves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from worker.errors import BackendError

# ggml_abort(file, line, format, ...) is what its macros call.
_ABORT = """
import ctypes, threading
from worker.llama import library
library.start()
lib = library.ggml()
lib.ggml_abort.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p]
words = b"/src/llama.cpp/ggml/src/ggml.c", 7, b"GGML_ASSERT(%s) failed", b"n > 0"
"""
_HERE = "lib.ggml_abort(*words)"
_BESIDE = "threading.Thread(target=lib.ggml_abort, args=words).start(); threading.Event().wait()"


@pytest.mark.parametrize("call", [_HERE, _BESIDE], ids=["main", "another thread"])
def test_an_assertion_ends_with_a_sentence(call: str) -> None:
    """Exit code 1 and the reason; no signal, no core file, no backtrace."""
    child = subprocess.run(
        [sys.executable, "-c", _ABORT + call], capture_output=True, text=True, timeout=60
    )
    assert child.returncode == BackendError.exit_code
    assert child.stderr.startswith(
        "error: BACKEND: llama.cpp gave up: GGML_ASSERT(n > 0) failed (ggml.c:7). "
    )
    assert child.stderr.count("\n") == 1
