"""A worker that takes its time without using a CPU.

`python -m tests.support.programs.slow serve ...` starts one.

What a test wants to look at is then still there when it looks, however busy the machine is.

STEP_SECONDS   each step of the engine takes so long at least
LOADED         each report of the load takes so long too, and it does not end before there is a file
               of this name
FORMED         what must hold its answer to a form is not made ready before there is a file of this
               name; each that waits for it adds a line to the one with the suffix ".begun"
POST_SECONDS   a manager gets so long to answer
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from worker.api.intake import preparing
from worker.cli.main import run
from worker.lifecycle import manager
from worker.llama.backend import LlamaBackend
from worker.llama.weights import LoadOptions, Weights

STEP_SECONDS = float(os.environ["STEP_SECONDS"])
load, decode = Weights.__init__, LlamaBackend.decode


def slow_load(
    self: Weights,
    path: Path,
    options: LoadOptions,
    on_progress: Callable[[float], bool] | None = None,
) -> None:
    def report(share: float) -> bool:
        """Go on being asked whether the load is given up."""
        while on_progress is None or on_progress(share):
            time.sleep(STEP_SECONDS)
            if Path(os.environ["LOADED"]).exists():
                return True
        return False

    load(self, path, options, report)


def slow_decode(self: LlamaBackend) -> None:
    time.sleep(STEP_SECONDS)
    decode(self)


class WaitingThreads(ThreadPoolExecutor):
    """Those for forms begin with nothing before the file is there."""

    def __init__(self, threads: int | None = None, *, thread_name_prefix: str) -> None:
        super().__init__(threads, thread_name_prefix)
        self._waits = thread_name_prefix == "formed"

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self._waits:
            return super().submit(function, *args, **kwargs)
        return super().submit(_when_there, partial(function, *args, **kwargs))


def _when_there(work: Callable[[], Any]) -> Any:
    there = Path(os.environ["FORMED"])
    with there.with_suffix(".begun").open("a") as begun:
        begun.write("begun\n")
    while not there.exists():
        time.sleep(STEP_SECONDS)
    return work()


if "FORMED" in os.environ:
    preparing.ThreadPoolExecutor = WaitingThreads
if "POST_SECONDS" in os.environ:
    manager.post = partial(manager.post, seconds=float(os.environ["POST_SECONDS"]))
if "LOADED" in os.environ:
    Weights.__init__ = slow_load
LlamaBackend.decode = slow_decode
sys.argv[0] = "worker"
run()
