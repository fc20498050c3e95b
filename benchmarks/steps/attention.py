"""How long steps take with fused attention and with plain attention, in turns.

    python -m benchmarks.steps.attention MODEL [--threads N] [--rounds N] [--slots N]

One process, two contexts over the same mapped file. Each pair is measured right one after the
other, so the quotients hardly depend on what else the machine does. Prints milliseconds of a step
of streams that write, and of a piece of a prompt, by the tokens before them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.quotients import quotient
from worker import log, machine
from worker.bench.measure.bare_loop import BareLoop, rate
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

DEPTHS = (0, 256, 700, 1100)
STREAMS, PIECES = (1, 2, 4, 8), (16, 64, 128)
SLOT_CELLS = 1280
_TOKENS = 4  # steps of one measurement
_PLAIN_ROWS = 64


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Either attention.")
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=machine.usable_cpus())
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--slots", type=int, default=8)
    given = parser.parse_args()
    log.configure("console", "error")
    streams = [count for count in STREAMS if count <= given.slots]
    found: list[dict[str, object]] = []
    with contextlib.ExitStack() as stack:
        loops: list[BareLoop] = []
        for fused in (True, False):
            opened = _opened(given.model, given.slots, given.threads, fused=fused)
            backend = stack.enter_context(opened)
            backend.warm_up()
            loops.append(BareLoop(backend))
        print(f"{'':24}{'fused, ms':>12}{'plain, ms':>12}   fused / plain")
        for depth in DEPTHS:
            for count in streams:
                name = f"write {count} after {depth}"
                found.append(_compare(name, loops, given.rounds, _writing(count, depth)))
            for rows in PIECES:
                name = f"read {rows} after {depth}"
                found.append(_compare(name, loops, given.rounds, _reading(rows, depth)))
    print(json.dumps({"model": given.model.name, "threads": given.threads, "steps": found}))


def _opened(model: Path, slots: int, threads: int, *, fused: bool) -> LlamaBackend:
    options = ContextOptions(
        num_cells=slots * SLOT_CELLS, num_slots=slots, threads=threads, threads_batch=threads,
        plain_rows=0 if fused else _PLAIN_ROWS,
    )  # fmt: skip
    return LlamaBackend.open(model, LoadOptions(), options)


def _writing(streams: int, depth: int) -> Callable[[BareLoop], float]:
    """Seconds of a step."""
    return lambda loop: streams / rate(loop.decode(streams, _TOKENS, depth))


def _reading(rows: int, depth: int) -> Callable[[BareLoop], float]:
    return lambda loop: rows / rate(loop.prefill(rows, depth))


def _compare(
    name: str, loops: list[BareLoop], rounds: int, seconds: Callable[[BareLoop], float]
) -> dict[str, object]:
    taken: tuple[list[float], list[float]] = ([], [])
    for number in range(1 + rounds):
        # Who comes first changes.
        for which in (0, 1) if number % 2 else (1, 0):
            taken[which].append(seconds(loops[which]))
    fused, plain = (values[1:] for values in taken)  # the first time touches memory
    times = quotient(fused, plain)
    middles = [1e3 * statistics.median(values) for values in (fused, plain)]
    print(f"{name:24}{middles[0]:12.1f}{middles[1]:12.1f}   {times}", flush=True)
    return {"step": name, "fused_ms": middles[0], "plain_ms": middles[1], "times": times._asdict()}


if __name__ == "__main__":
    main()
