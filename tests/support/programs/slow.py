"""A worker that takes its time without using a CPU.

`python -m tests.support.programs.slow serve ...` starts one.

What a test wants to look at is then still there when it looks, however busy the machine is.

STEP_SECONDS   each step of the engine takes so long at least
LOADED         each report of the load takes so long too, and it does not end before there is a file
               of this name
FORMED         what must hold its answer to a form is not made ready before there is a file of this
               name; each that waits for it adds a line to the one with the suffix ".begun"
POST_SECONDS   a manager gets so long to answer
FREE_GUESSES   each step is taken to cost as much as any other, and guesses nothing
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from worker.budget import Budget
from worker.cli.main import run
from worker.engine.cost import StepCost
from worker.engine.drafts.rounds import Rounds
from worker.grammar.constraint import Constraint
from worker.lifecycle import manager
from worker.llama.backend import LlamaBackend
from worker.llama.guides.guides import Guides
from worker.llama.weights import LoadOptions, Weights

STEP_SECONDS = float(os.environ["STEP_SECONDS"])
load, decode, prepare = Weights.__init__, LlamaBackend.decode, Guides.prepare
observe = StepCost.observe


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


def slow_prepare(self: Guides, constraint: Constraint, budget: Budget) -> None:
    """Begin with nothing before the file is there."""
    there = Path(os.environ["FORMED"])
    with there.with_suffix(".begun").open("a") as begun:
        begun.write("begun\n")
    while not there.exists():
        time.sleep(STEP_SECONDS)
    prepare(self, constraint, budget)


def even_observe(
    self: StepCost, decode_rows: int, prompt_rows: int, seconds: float, *, num_waiting: int = 0
) -> None:
    observe(self, decode_rows, prompt_rows, 1.0, num_waiting=num_waiting)


def free_seconds(self: Rounds[Any, Any], sequences: int, length: int) -> float:
    return 0.0


def observe_nothing(self: Rounds[Any, Any], rows: int, seconds: float) -> None:
    pass


if "FREE_GUESSES" in os.environ:
    StepCost.observe, Rounds.seconds = even_observe, free_seconds
    Rounds._observe_reading = observe_nothing  # pyright: ignore[reportPrivateUsage]
if "FORMED" in os.environ:
    Guides.prepare = slow_prepare
if "POST_SECONDS" in os.environ:
    manager.post = partial(manager.post, seconds=float(os.environ["POST_SECONDS"]))
if "LOADED" in os.environ:
    Weights.__init__ = slow_load
LlamaBackend.decode = slow_decode
sys.argv[0] = "worker"
run()
