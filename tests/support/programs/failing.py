"""A worker that fails when it is told to.

`python -m tests.support.programs.failing serve ...` starts one.

FAILURE       a file; while it holds `batch` no batch can be computed, and at `engine` the engine's
              thread ends
STEP_SECONDS  each step of the engine takes so long at least
READ_SECONDS  a body must arrive within so long
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from worker.cli.main import run
from worker.engine.backend import BatchError
from worker.llama.backend import LlamaBackend
from worker.service import body

FAILURE = Path(os.environ["FAILURE"])
STEP_SECONDS = float(os.environ["STEP_SECONDS"])
decode = LlamaBackend.decode


def failing_decode(self: LlamaBackend) -> None:
    time.sleep(STEP_SECONDS)
    planned = FAILURE.read_text() if FAILURE.exists() else ""
    if planned == "batch":
        raise BatchError("planned")
    if planned == "engine":
        raise RuntimeError("planned")
    decode(self)


body.READ_TIMEOUT_S = float(os.environ["READ_SECONDS"])
LlamaBackend.decode = failing_decode
sys.argv[0] = "worker"
run()
