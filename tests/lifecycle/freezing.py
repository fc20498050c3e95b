"""A worker whose engine can be frozen, or only be slow: `python -m tests.lifecycle.freezing serve`.

FREEZE says when: idle (after the first request), step (at the first prompt of more than 100
tokens), or busy (the first such step computes for SECONDS, as on a slow machine). The watchdog
looks SPEED times as often, and takes an engine for frozen after that part of the time. How long it
then lets health say so stays as it is: a test has to see it.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from worker.cli.main import run
from worker.engine.thread import EngineThread
from worker.lifecycle import watchdog
from worker.llama.backend import LlamaBackend

WHEN = os.environ["FREEZE"]
SPEED = float(os.environ["SPEED"])
for limit in ("STALLED_AFTER_S", "PERIOD_S"):
    setattr(watchdog, limit, getattr(watchdog, limit) / SPEED)
never = threading.Event()
slow = [float(os.environ["SECONDS"])] if WHEN == "busy" else []
decode, step_thread = LlamaBackend.decode, EngineThread._read_inbox  # pyright: ignore[reportPrivateUsage]


def freezing_decode(self: LlamaBackend) -> None:
    if self.batch.size > 100 and WHEN == "step":
        never.wait()
    if self.batch.size > 100 and slow:
        end = time.thread_time() + slow.pop()
        while time.thread_time() < end:
            sum(range(1000))
    decode(self)


def freezing_read_inbox(self: EngineThread) -> bool:
    if WHEN == "idle" and self.engine.is_idle and sum(self.snapshot.stats.finished.values()):
        never.wait()
    return step_thread(self)


LlamaBackend.decode = freezing_decode
EngineThread._read_inbox = freezing_read_inbox  # pyright: ignore[reportPrivateUsage]
sys.argv[0] = "worker"
run()
