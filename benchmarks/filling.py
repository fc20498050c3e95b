"""What rows that nobody reads gain: the engine with filled steps beside the same engine without.

    python -m benchmarks.filling MODEL [--threads N] [--rounds N]

One process, one context. Each round runs the same requests in both ways, in turn; what the first
engine has learned of the machine is kept from round to round. Prints tokens a second of streams
that all write, seconds to the first token of short prompts, and the ratios of the medians. With
`--threads 1` it counts CPU seconds, which neighbours hardly change; else seconds of the clock.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from worker import log, machine
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.engine.steps.padding import Padding
from worker.llama.backend import LlamaBackend
from worker.llama.context_options import ContextOptions
from worker.llama.weights import LoadOptions

STREAMS = (3, 12, 15)
PROMPTS = (13, 47, 56, 63)
SLOTS, CELLS = 16, 256  # cells of each slot
WRITTEN = 48
_GREEDY = SamplingParams(temperature=0, ignore_eos=True)


class NoPadding(Padding):
    """Never fills."""

    def fills(self, decode_rows: int) -> bool:
        """No."""
        return False

    def fills_prompt(self, rows: int, depth: int) -> bool:
        """No."""
        return False


class BothWays:
    """Runs requests with filling and without, over one backend."""

    def __init__(self, backend: LlamaBackend, clock: Callable[[], float]) -> None:
        self._backend, self._clock = backend, clock
        self._paddings = (NoPadding(), Padding())
        self._random = random.Random(7)

    def compare(self, count: int, prompt: int, written: int, rounds: int) -> tuple[float, float]:
        """Median seconds without and with filling of `count` requests, read and written.

        Rounds in which the engine learns are not counted.
        """
        seconds: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds + 6):
            for way, padding in enumerate(self._paddings):
                seconds[way].append(self._run(padding, count, prompt, written))
        without, filled = (statistics.median(found[6:]) for found in seconds)
        return without, filled

    def _run(self, padding: Padding, count: int, prompt: int, written: int) -> float:
        self._backend.context.clear()
        engine = Engine(self._backend, self._clock)
        engine.scheduler.padding = padding
        for number in range(count):
            tokens = tuple(self._random.choices(range(600, 2000), k=prompt))
            engine.add(Request(id=str(number), prompt=tokens, max_tokens=written, sampling=_GREEDY))
        if written > 1:  # only what they write counts
            first: set[str] = set()
            while len(first) < count:
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
    log.configure("console", quiet=True)
    options = ContextOptions(
        num_cells=SLOTS * CELLS, num_slots=SLOTS, threads=given.threads, threads_batch=given.threads
    )
    clock = time.thread_time if given.threads == 1 else time.perf_counter
    print(f"{given.model.name}, {given.threads} thread(s), {SLOTS} slots of {CELLS} cells")
    with LlamaBackend.open(given.model, LoadOptions(), options) as backend:
        pair = BothWays(backend, clock)
        for count in STREAMS:
            without, filled = pair.compare(count, 12, WRITTEN, given.rounds)
            tokens = count * (WRITTEN - 1)
            print(
                f"{count} streams: {tokens / without:.1f} tok/s without, {tokens / filled:.1f} "
                f"filled, {without / filled:.3f}",
                flush=True,
            )
        for prompt in PROMPTS:
            without, filled = pair.compare(1, prompt, 1, given.rounds)
            print(
                f"first token of a prompt of {prompt}: {1e3 * without:.1f} ms without, "
                f"{1e3 * filled:.1f} filled, {without / filled:.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
