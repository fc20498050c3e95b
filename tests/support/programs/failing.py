"""A worker that fails when it is told to.

`python -m tests.support.programs.failing serve ...` starts one.

FAILURE       a file; while it holds `batch` no batch can be computed, at `long` each constraint
              takes long and as many as may wait do, and at `engine` the engine's thread ends
STEP_SECONDS  each step of the engine takes so long at least
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.cli.main import run
from worker.engine.backend import BatchError
from worker.grammar.patience import IS_PATIENT, ImpatientError
from worker.llama.backend import LlamaBackend
from worker.service.preparing import Preparing

FAILURE = Path(os.environ["FAILURE"])
STEP_SECONDS = float(os.environ["STEP_SECONDS"])
decode = LlamaBackend.decode
aside = Preparing.aside


def what() -> str:
    return FAILURE.read_text() if FAILURE.exists() else ""


async def slow_aside(
    self: Preparing, request: Any, body: Any, function: Callable[..., Any], *arguments: Any
) -> Any:
    def work() -> Any:
        if what() == "long" and not IS_PATIENT.get():
            raise ImpatientError
        return function(*arguments)

    return await aside(self, request, body, work)


def failing_decode(self: LlamaBackend) -> None:
    time.sleep(STEP_SECONDS)
    planned = what()
    if planned == "batch":
        raise BatchError("planned")
    if planned == "engine":
        raise RuntimeError("planned")
    decode(self)


LlamaBackend.decode = failing_decode
Preparing.__init__ = functools.partialmethod(Preparing.__init__, 0)
Preparing.aside = slow_aside
sys.argv[0] = "worker"
run()
