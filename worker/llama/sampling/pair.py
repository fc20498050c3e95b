"""Two threads that choose tokens side by side, where that is faster."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from worker.llama.process.threads import ThreadLesson

# Logits that a step's rows must have together. With 32,000 tokens eight choices take 0.9 ms one
# after the other and 1.1 in two threads, which wait for Python's lock; with 150,000 2.6 and 1.7.
_WORTH = 1 << 19


class SamplingPair:
    """The engine's thread and one beside it. Which is faster is learned on real steps.

    rows  fewer are not worth a second thread; 0: none are, because the process has one CPU
    """

    def __init__(self, vocab_size: int, threads: int) -> None:
        """threads: that compute; one alone is to have one CPU"""
        self.rows = max(2, -(-_WORTH // vocab_size)) if threads > 1 else 0
        self._lesson = ThreadLesson(2)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="sampling")

    def run(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """What the jobs return. They may run at the same time, and none waits for another."""
        started = time.perf_counter()
        made = self._both(jobs) if self._lesson.threads > 1 else [job() for job in jobs]
        self._lesson.observe(len(jobs), time.perf_counter() - started)
        return made

    def _both(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        """Each thread takes the next job when it is done with one."""
        made: list[Any] = [None] * len(jobs)
        left = deque(enumerate(jobs))

        def work() -> None:
            while left:
                try:
                    at, job = left.popleft()
                except IndexError:  # the other thread was faster
                    return
                made[at] = job()

        other = self._pool.submit(work)
        try:
            work()
        finally:
            # Where this thread has done all of it, nobody waits until that one is awake.
            if not other.cancel():
                other.result()
        return made

    def close(self) -> None:
        """End the second thread."""
        self._pool.shutdown()
