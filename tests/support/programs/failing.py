"""A worker that fails when it is told to.

`python -m tests.support.programs.failing serve ...` starts one.

FAILURE       a file; while it holds `batch` no batch can be computed, at `long` each constraint
              takes long and as many as may wait do, at `bodies` no body has room, at `tokenizer`
              no long text has time, and at `engine` the engine's thread ends
STEP_SECONDS  each step of the engine takes so long at least
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from worker.api.intake import preparing
from worker.api.intake.body import Bodies
from worker.cli.main import run
from worker.engine.backend import BatchError
from worker.errors import QueueFullError
from worker.limits import LONG
from worker.llama.backend import LlamaBackend
from worker.llama.text_parts import TokenizerPatience

FAILURE = Path(os.environ["FAILURE"])
STEP_SECONDS = float(os.environ["STEP_SECONDS"])
decode = LlamaBackend.decode
hold = Bodies.hold
check = TokenizerPatience.check


def what() -> str:
    return FAILURE.read_text() if FAILURE.exists() else ""


class SlowThreads(ThreadPoolExecutor):
    """All that requests let them do takes long, where it is asked for."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        def work() -> Any:
            if what() == "long":
                (budget,) = args
                budget.make_way("long")
            return function(*args, **kwargs)

        return super().submit(work)


def failing_hold(self: Bodies, count: int) -> None:
    if what() == "bodies":
        raise QueueFullError("planned")
    hold(self, count)


def failing_check(self: TokenizerPatience) -> None:
    if what() == "tokenizer":
        self.end = 0.0
    check(self)


def failing_decode(self: LlamaBackend) -> None:
    time.sleep(STEP_SECONDS)
    planned = what()
    if planned == "batch":
        raise BatchError("planned")
    if planned == "engine":
        raise RuntimeError("planned")
    decode(self)


LlamaBackend.decode = failing_decode
preparing.LONG = msgspec.structs.replace(LONG, most=0)
preparing.ThreadPoolExecutor = SlowThreads
Bodies.hold = failing_hold
TokenizerPatience.check = failing_check
sys.argv[0] = "worker"
run()
