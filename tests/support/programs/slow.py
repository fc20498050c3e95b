"""A worker that takes its time without using a CPU.

`python -m tests.support.programs.slow serve ...` starts one.

What a test wants to look at is then still there when it looks, however busy the machine is.

STEP_SECONDS   each step of the engine takes so long at least
LOADED         each report of the load takes so long too, and it does not end before there is a file
               of this name
POST_SECONDS   a manager gets so long to answer
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

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


if "POST_SECONDS" in os.environ:
    manager.post = functools.partial(manager.post, seconds=float(os.environ["POST_SECONDS"]))
if "LOADED" in os.environ:
    Weights.__init__ = slow_load
LlamaBackend.decode = slow_decode
sys.argv[0] = "worker"
run()
