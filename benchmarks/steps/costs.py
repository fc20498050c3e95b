"""What a step of a worker costs, recorded from a real model on one thread.

    python -m benchmarks.steps.costs NAME=MODEL.gguf ...

prints them as JSON; the simulation of a fleet computes with such a file,
fleet/benchmarks/simulation/costs.json. CPU seconds of the thread that computes, so a busy neighbour
does not count.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import msgspec

from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams

ROWS = (1, 2, 4, 8)
_DEPTH, _PROMPT, _STEPS = 256, 512, 24
_GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class StepCosts(msgspec.Struct, frozen=True):
    """CPU seconds on one thread.

    decode  of a step by its rows, each of a sequence of about 270 tokens
    alone   of one row of a prompt of 512 that nobody waits beside
    beside  of one row of such a prompt while four sequences write
    """

    decode: dict[int, float]
    alone: float
    beside: float


def record(model: Path) -> StepCosts:
    """Measure a model."""
    from worker.llama.backend import LlamaBackend
    from worker.llama.context import ContextOptions
    from worker.llama.weights import LoadOptions

    slots = max(ROWS) + 1
    options = ContextOptions(num_cells=slots * 1024, num_slots=slots)
    with LlamaBackend.open(model, LoadOptions(n_gpu_layers=0), options) as backend:
        decode = {rows: _decode_step(_engine(backend), rows) for rows in ROWS}
        alone = _first_token(_engine(backend), 0) / _PROMPT
        engine, writing = _engine(backend), 4
        beside = _first_token(engine, writing, decode[writing]) / _PROMPT
    return StepCosts(
        {rows: _rounded(seconds) for rows, seconds in decode.items()},
        _rounded(alone),
        _rounded(beside),
    )


def _rounded(seconds: float) -> float:
    """To three figures; the rest is chance."""
    return float(f"{seconds:.3g}")


def _engine(backend: object) -> Engine:
    backend.context.clear()  # type: ignore[attr-defined]
    return Engine(backend, time.thread_time)  # type: ignore[arg-type]


def _add(engine: Engine, name: int, length: int, tokens: int) -> None:
    prompt = tuple(5 + (name * 131 + n * 7) % 250 for n in range(length))
    engine.add(
        Request(
            id=str(name),
            prompt=Prompt(prompt),
            params=GenerationParams(max_tokens=tokens, sampling=_GREEDY),
        )
    )


def _start(engine: Engine, rows: int) -> None:
    """So many sequences that write."""
    for name in range(rows):
        _add(engine, name, _DEPTH, 700)
    begun: set[str] = set()
    while len(begun) < rows:
        begun |= {delta.id for delta in engine.step()}


def _decode_step(engine: Engine, rows: int) -> float:
    _start(engine, rows)
    seconds: list[float] = []
    for _ in range(_STEPS):
        began = time.thread_time()
        engine.step()
        seconds.append(time.thread_time() - began)
    return statistics.median(seconds)


def _first_token(engine: Engine, rows: int, step: float = 0.0) -> float:
    """Seconds that a prompt adds until its first token."""
    _start(engine, rows)
    _add(engine, 99, _PROMPT, 2)
    began, steps, is_there = time.thread_time(), 0, False
    while not is_there:
        is_there = any(delta.id == "99" for delta in engine.step())
        steps += 1
    return time.thread_time() - began - steps * step


def main() -> None:
    """Record the models that are named."""
    named = (word.partition("=") for word in sys.argv[1:])
    found = {name: record(Path(path)) for name, _, path in named}
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


if __name__ == "__main__":
    main()
