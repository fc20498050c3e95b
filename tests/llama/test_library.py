"""llama.cpp's log: whole lines with their own level, whichever thread writes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from worker.errors import DoesNotFitError, ModelLoadError
from worker.llama.library import NativeLog, failure

INFO, WARNING, ERROR, MORE = 2, 3, 4, 5


@pytest.fixture
def native_log() -> NativeLog:
    """A log of its own, which llama.cpp does not write to."""
    return NativeLog()


def test_a_line_in_pieces(native_log: NativeLog) -> None:
    """A line ends where a newline is, and has the level that it began with."""
    with native_log.capture() as lines:
        native_log.callback(WARNING, b"half", None)
        assert lines == []
        native_log.callback(MORE, b" and half\nnext", None)
        native_log.callback(MORE, b"\n", None)
    native_log.callback(INFO, b"after\n", None)
    assert lines == [("warning", "half and half"), ("warning", "next")]


def test_lines_of_two_threads_do_not_mix(native_log: NativeLog) -> None:
    """A thread's half line is not finished by another thread, nor does it get its level; a capture
    has the lines of its own thread, for sizes are read from them."""
    with native_log.capture() as lines, ThreadPoolExecutor(1) as other:
        capture = native_log.capture()
        others = other.submit(capture.__enter__).result()
        write: Callable[[int, bytes, None], None] = native_log.callback
        write(INFO, b"loading", None)
        other.submit(write, ERROR, b"no memory", None).result()
        write(MORE, b" done\n", None)
        other.submit(write, MORE, b" left\n", None).result()
        capture.__exit__(None, None, None)
    assert lines == [("info", "loading done")]
    assert others == [("error", "no memory left")]


@pytest.mark.parametrize(
    ("line", "is_memory"),
    [
        ("alloc_tensor_range: failed to allocate CPU buffer of size 1073741824", True),
        ("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory", True),
        ("llama_model_load: error loading model: std::bad_alloc", True),
        ("llama_model_load: error loading model: mmap failed: Cannot allocate memory", True),
        ("ggml_vulkan: Device memory allocation of size 5 failed: ErrorOutOfDeviceMemory", True),
        ("llama_model_load: error loading model: tensor 'a' is not within the file bounds", False),
        ("ggml_cuda_init: device is busy", False),
    ],
)
def test_the_hint_fits_the_cause(line: str, is_memory: bool) -> None:
    """Where memory ran out, another file is no help."""
    error = failure("It failed", [("error", line)], hint="Get another.", smaller="Free memory.")
    assert isinstance(error, DoesNotFitError if is_memory else ModelLoadError)
    assert error.hint == ("Free memory." if is_memory else "Get another.")
    assert line.split(": ", 1)[1] in error.message


def test_the_hint_for_open_files() -> None:
    """Where the process has no file left to open, another file is no help."""
    line = "llama_model_load: failed to open GGUF file '/proc/self/fd/9' (Too many open files)"
    error = failure("It failed", [("error", line)], hint="Get another.", smaller="Free memory.")
    assert "ulimit -n" in str(error.hint)
