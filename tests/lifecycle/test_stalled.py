"""What counts as a sign of life of the engine, and how long a silence may be."""

from __future__ import annotations

import time

import pytest

from worker.lifecycle.watchdog import STALLED_AFTER_S, Watchdog


class Thread:
    """Signs of life, given by hand."""

    tick = 0.0
    cpu_seconds: float | None = 0.0


def test_what_counts_as_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick or CPU time is a sign of life; without a CPU clock a longer silence is allowed."""
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    thread = Thread()
    watchdog = Watchdog(thread, sleeps=False)

    def pass_time(seconds: int) -> None:
        nonlocal now
        for _ in range(seconds):
            now += 1
            watchdog.look()

    pass_time(9)
    assert watchdog.is_late
    assert not watchdog.is_stalled
    pass_time(1)
    assert watchdog.is_stalled
    thread.cpu_seconds = 0.5
    pass_time(1)
    assert watchdog.silent_s == 0
    thread.tick = 1.0
    pass_time(9)
    assert not watchdog.is_stalled
    now += 3600  # the machine slept: the watchdog saw none of it
    watchdog.look()
    assert watchdog.silent_s == 8 + 2
    thread.cpu_seconds = None
    assert not watchdog.is_stalled
    pass_time(50)
    assert watchdog.is_stalled
    thread.cpu_seconds = 0.0
    on_gpu = Watchdog(thread, sleeps=True)
    on_gpu.silent_s = STALLED_AFTER_S
    assert not on_gpu.is_stalled
