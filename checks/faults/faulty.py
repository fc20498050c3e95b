"""A worker whose calls into llama.cpp, and whose clock, fail as a `Block` says.

`python -m checks.faults.faulty serve ...` starts one; FAULT_BLOCK names the block's file.
The system's calls are failed by `checks/faults/shim.c`, which is loaded before.

    decode        returns the code; below 0 but not -1, and 2, after it has computed
    tokenize      returns the code
    state         sizes, copies out and copies in return 0
    sampler       a native sampler cannot be made
    memory        Python has no memory where a token is chosen
    clock         the time of day jumps by so many hours
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from worker.__main__ import run  # first, as a worker does: it sees to signals and to threads

# isort: split
from checks.faults.block import VARIABLE, Block
from worker.engine.backend import OutputRow
from worker.llama.backend import LlamaBackend
from worker.llama.library import native

block = Block(Path(os.environ[VARIABLE]))
# llama.cpp computes all of a batch, or some of it, before it returns these.
_COMPUTED = frozenset({2, -2, -3})
_STATE = ("llama_state_seq_get_size", "llama_state_seq_get_data", "llama_state_seq_set_data")
_SAMPLERS = ("greedy", "dist", "top_k", "top_p", "min_p", "temp", "penalties")


def _returning(seam: str, name: str, result: Callable[[int], Any]) -> None:
    """Let a function of llama.cpp return `result(code)` instead of being called."""
    real = getattr(native, name)

    def call(*arguments: Any) -> Any:
        code = block.strikes(seam)
        return real(*arguments) if code is None else result(code)

    setattr(native, name, call)


def _decode(*arguments: Any, real: Any = native.llama_decode) -> int:
    code = block.strikes("decode")
    if code is None or code in _COMPUTED:
        done = real(*arguments)
        return done if code is None else code
    return code


def _sample(
    self: LlamaBackend, row: OutputRow, sampler: Any, real: Any = LlamaBackend.sample
) -> int:
    if block.strikes("memory") is not None:
        raise MemoryError
    return real(self, row, sampler)


def _time(real: Callable[[], float] = time.time) -> float:
    hours = block.strikes("clock")
    return real() + (0 if hours is None else hours * 3600)


native.llama_decode = _decode
LlamaBackend.sample = _sample
time.time = _time
time.time_ns = lambda: int(_time() * 1e9)
_returning("tokenize", "llama_tokenize", lambda code: code)
for name in _STATE:
    _returning("state", name, lambda _: 0)
for name in _SAMPLERS:
    _returning("sampler", f"llama_sampler_init_{name}", lambda _: None)
sys.argv[0] = "worker"
if __name__ == "__main__":
    run()
