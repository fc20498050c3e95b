"""What rows that nobody reads gain: the engine with filled steps beside the same engine without.

    python -m benchmarks.filling MODEL [--threads N] [--rounds N]

One process, one context. Each round runs the same requests in both ways, in turn. Prints tokens a
second of streams that all write, and the ratios of the medians. With `--threads 1` it counts CPU
seconds, which neighbours hardly change; else seconds of the clock.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from worker import log, machine
from worker.engine.backend import Kernels
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

STREAMS = (12, 13, 14, 15)
PROMPT = 12
SLOTS, CELLS = 16, 256  # cells of each slot
WRITTEN = 48
_GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class BothWays:
    """Runs requests with filling and without, over one backend."""

    def __init__(self, backend: LlamaBackend, clock: Callable[[], float]) -> None:
        self._backend, self._clock = backend, clock
        self._kernels = (Kernels(), Kernels(fewest=min(STREAMS)))
        self._random = random.Random(7)

    def compare(self, count: int, rounds: int) -> tuple[float, float]:
        """Median seconds in which `count` streams write, without and with filling."""
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 1):  # the first one touches memory
            for way, kernels in enumerate(self._kernels):
                seconds[way].append(self._run(kernels, count))
        without, filled = (statistics.median(found[1:]) for found in seconds)
        return without, filled

    def _run(self, kernels: Kernels, count: int) -> float:
        self._backend.context.clear()
        self._backend.kernels = kernels
        engine = Engine(self._backend, self._clock)
        for number in range(count):
            tokens = tuple(self._random.choices(range(600, 2000), k=PROMPT))
            engine.add(
                Request(
                    id=str(number),
                    prompt=Prompt(tokens),
                    params=GenerationParams(max_tokens=WRITTEN, sampling=_GREEDY),
                )
            )
        first: set[str] = set()
        while len(first) < count:  # only what they write counts
            first.update(delta.id for delta in engine.step())
        started = self._clock()
        while not engine.is_idle:
            engine.step()
        return self._clock() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="benchmarks.filling")
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=machine.usable_cpus())
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    log.configure("console", "error")
    options = ContextOptions(
        num_cells=SLOTS * CELLS, num_slots=SLOTS, threads=given.threads, threads_batch=given.threads
    )
    clock = time.thread_time if given.threads == 1 else time.perf_counter
    print(f"{given.model.name}, {given.threads} thread(s), {SLOTS} slots of {CELLS} cells")
    with LlamaBackend.open(given.model, LoadOptions(), options) as backend:
        pair = BothWays(backend, clock)
        for count in STREAMS:
            without, filled = pair.compare(count, given.rounds)
            tokens = count * (WRITTEN - 1)
            print(
                f"{count} streams: {tokens / without:.1f} tok/s without, {tokens / filled:.1f} "
                f"filled, {without / filled:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
