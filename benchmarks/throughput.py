"""End to end against the bare decode loop, alternating, in one run.

    python -m benchmarks.throughput [MODEL] [--tokens 200] [--streams 1 4] [--depths 0 400 2000]
                                    [--rounds 5]

Three ways to the same greedy tokens: the bare loop (llama_decode and the sampler, nothing else),
our engine in this process, and the whole worker over HTTP with SSE, without guesses. A prompt has
as many tokens as the depth says, or those of a few words. Prints medians, spread and the ratios of
neighbours in time, then one line of JSON.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.peers.quotients import quotient
from worker import log, machine
from worker.bench.measure.bare_loop import greedy_samplers, random_tokens, read_runs, write_steps
from worker.bench.measure.client import StreamedRequest
from worker.bench.measure.server import model_server
from worker.demo import MODEL_PATH
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions
from worker.memory.contexts import CELL_STEP
from worker.settings import Settings

PROMPT = "Once upon a time there was"
GREEDY = SamplingParams(temperature=0, ignore_eos=True)


def bare_loop(backend: LlamaBackend, prompt: list[int], tokens: int, streams: int) -> float:
    """Tokens per second of decode and sample alone."""
    backend.context.clear()
    ids = np.array(prompt, np.int32)
    with greedy_samplers(backend, streams) as samplers:
        runs = [(slot, ids, 0) for slot in range(streams)]
        first = [backend.sample(row, samplers[slot]) for slot, row in read_runs(backend, runs)]
        started = time.perf_counter()
        for _ in write_steps(backend, samplers, first, [len(prompt)] * streams, tokens - 1):
            pass
        return streams * (tokens - 1) / (time.perf_counter() - started)


def through_engine(backend: LlamaBackend, prompt: list[int], tokens: int, streams: int) -> float:
    """Tokens per second of Engine.step, from the last first token on."""
    backend.context.clear()  # what the last engine kept as cache means nothing to this one
    engine = Engine(backend, time.perf_counter)
    for i in range(streams):
        engine.add(
            Request(
                id=str(i),
                prompt=Prompt(tuple(prompt)),
                params=GenerationParams(max_tokens=tokens, sampling=GREEDY),
            )
        )
    count, started = 0, 0.0
    while not engine.is_idle:
        deltas = engine.step()
        if started:
            count += len(deltas)
        elif len(deltas) == streams:
            started = time.perf_counter()
    return count / (time.perf_counter() - started)


def through_http(port: int, prompt: list[int], tokens: int, streams: int) -> float:
    """Tokens per second over SSE, from the first token of any stream to the last of all."""
    requests = [StreamedRequest(prompt, tokens) for _ in range(streams)]
    with ThreadPoolExecutor(streams) as pool:
        running = [pool.submit(request.run, "127.0.0.1", port) for request in requests]
        answers = [future.result() for future in running]
    if failed := next((answer.error for answer in answers if answer.error), None):
        raise SystemExit(f"The server failed: {failed}.")
    begin, end = min(a.times[0] for a in answers), max(a.times[-1] for a in answers)
    return streams * (tokens - 1) / (end - begin)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="End to end against the bare decode loop.")
    parser.add_argument("model", nargs="?", type=Path, default=MODEL_PATH)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--depths", type=int, nargs="+", default=[0])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    log.configure("console")
    threads, most = machine.usable_cpus(), max(arguments.streams)
    cells = most * -(-(arguments.tokens + max(arguments.depths) + 64) // CELL_STEP) * CELL_STEP
    options = ContextOptions(
        num_cells=cells, num_slots=most, threads=threads, threads_batch=threads
    )
    report: list[dict[str, object]] = []
    with (
        LlamaBackend.open(arguments.model, LoadOptions(), options) as backend,
        model_server(
            arguments.model, Settings(ctx_size=cells, parallel=most, draft="none")
        ) as server,
    ):
        if max(arguments.depths) + arguments.tokens > backend.max_length:
            raise SystemExit(f"A sequence has {backend.max_length} tokens: fewer --tokens, please.")
        words = backend.vocab.tokenize(PROMPT, add_special=True, parse_special=False)
        for streams, depth in itertools.product(arguments.streams, arguments.depths):
            more = random_tokens(depth, max(0, depth - len(words)), backend.vocab_size)
            prompt, tokens = [*words, *more.tolist()], arguments.tokens
            ways: dict[str, Callable[[], float]] = {
                "bare loop": partial(bare_loop, backend, prompt, tokens, streams),
                "engine": partial(through_engine, backend, prompt, tokens, streams),
                "http": partial(through_http, server.port, prompt, tokens, streams),
            }
            samples: dict[str, list[float]] = {name: [] for name in ways}
            for measured in [False] + [True] * arguments.rounds:
                for name, way in ways.items():
                    speed = way()
                    if measured:
                        samples[name].append(speed)
            for name, values in samples.items():
                print(
                    f"{streams:3} streams  {len(prompt):5} tokens  {name:10} "
                    f"{statistics.median(values):9.1f} tok/s "
                    f"({min(values):.1f} to {max(values):.1f})  "
                    f"{quotient(values, samples['bare loop'])} of bare"
                )
                report.append(
                    {"streams": streams, "depth": len(prompt), "way": name, "samples": values}
                )
    print(
        json.dumps(
            {"model": arguments.model.name, "tokens": arguments.tokens, "threads": threads}
            | {"results": report}
        )
    )


if __name__ == "__main__":
    main()
