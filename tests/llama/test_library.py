"""llama.cpp's log: whole lines with their own level, whichever thread writes them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from worker.llama.library import NativeLog

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
    """A thread's half line is not finished by another thread, nor does it get its level."""
    with native_log.capture() as lines, ThreadPoolExecutor(1) as other:
        write: Callable[[int, bytes, None], None] = native_log.callback
        write(INFO, b"loading", None)
        other.submit(write, ERROR, b"no memory", None).result()
        write(MORE, b" done\n", None)
        other.submit(write, MORE, b" left\n", None).result()
    assert lines == [("info", "loading done"), ("error", "no memory left")]
