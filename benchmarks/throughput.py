"""End to end against the bare decode loop, alternating, in one run.

    python -m benchmarks.throughput [MODEL] [--tokens 200] [--streams 1 4] [--rounds 5]

Three ways to the same greedy tokens: the bare loop (llama_decode and the sampler, nothing else),
our engine in this process, and the whole worker over HTTP with SSE. Prints medians, spread and
ratios, then one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx

from tests.support.processes import Server, serving
from worker import log, machine
from worker.demo import MODEL_PATH
from worker.engine.engine import Engine
from worker.engine.request import Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

PROMPT = "Once upon a time there was"
GREEDY = SamplingParams(temperature=0, ignore_eos=True)


def bare_loop(backend: LlamaBackend, prompt: list[int], tokens: int, streams: int) -> float:
    """Tokens per second of decode and sample alone."""
    requests = [
        Request(id=str(i), prompt=tuple(prompt), max_tokens=tokens, sampling=GREEDY)
        for i in range(streams)
    ]
    samplers = [backend.make_sampler(request) for request in requests]
    last = [0] * streams
    backend.context.clear()
    for slot in range(streams):
        backend.batch.clear()
        for position, token in enumerate(prompt):
            row = backend.batch.add_one(token, position, slot)
            backend.batch.outputs[row] = position == len(prompt) - 1
        backend.decode()
        last[slot] = backend.sample(len(prompt) - 1, samplers[slot])
    started = time.perf_counter()
    for step in range(tokens - 1):
        backend.batch.clear()
        for slot in range(streams):
            backend.batch.add_one(last[slot], len(prompt) + step, slot)
        backend.decode()
        for slot in range(streams):
            last[slot] = backend.sample(slot, samplers[slot])
    elapsed = time.perf_counter() - started
    for sampler in samplers:
        backend.free_sampler(sampler)
    return streams * (tokens - 1) / elapsed


def through_engine(backend: LlamaBackend, prompt: list[int], tokens: int, streams: int) -> float:
    """Tokens per second of Engine.step, from the last first token on."""
    backend.context.clear()  # what the last engine kept as cache means nothing to this one
    engine = Engine(backend, time.perf_counter)
    for i in range(streams):
        engine.add(Request(id=str(i), prompt=tuple(prompt), max_tokens=tokens, sampling=GREEDY))
    count, started = 0, 0.0
    while not engine.is_idle:
        deltas = engine.step()
        if started:
            count += len(deltas)
        elif len(deltas) == streams:
            started = time.perf_counter()
    return count / (time.perf_counter() - started)


def through_http(server: Server, tokens: int, streams: int) -> float:
    """Tokens per second over SSE, between each stream's first and last token."""
    body = {"prompt": PROMPT, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    body |= {"stream": True}
    spans: list[tuple[float, float]] = []
    barrier = threading.Barrier(streams)

    def client() -> None:
        barrier.wait()
        with httpx.stream("POST", server.url + "/v1/completions", json=body, timeout=600) as answer:
            times = [time.perf_counter() for line in answer.iter_lines() if '"text"' in line]
        spans.append((times[0], times[-1]))

    threads = [threading.Thread(target=client) for _ in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = max(end for _, end in spans) - max(begin for begin, _ in spans)
    return streams * (tokens - 1) / elapsed


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="End to end against the bare decode loop.")
    parser.add_argument("model", nargs="?", type=Path, default=MODEL_PATH)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    log.configure("console")
    threads, most = machine.usable_cpus(), max(arguments.streams)
    cells = most * (arguments.tokens + 64) + 256
    options = ContextOptions(
        num_cells=cells, num_slots=most, threads=threads, threads_batch=threads
    )
    report: list[dict[str, object]] = []
    with (
        LlamaBackend(arguments.model, LoadOptions(), options) as backend,
        serving("--model", arguments.model, "-c", str(cells), "-np", str(most)) as server,
    ):
        prompt = backend.vocab.tokenize(PROMPT, add_special=True, parse_special=False)
        for streams in arguments.streams:
            ways: dict[str, Callable[[], float]] = {
                "bare loop": lambda n=streams: bare_loop(backend, prompt, arguments.tokens, n),
                "engine": lambda n=streams: through_engine(backend, prompt, arguments.tokens, n),
                "http": lambda n=streams: through_http(server, arguments.tokens, n),
            }
            samples: dict[str, list[float]] = {name: [] for name in ways}
            for measured in [False] + [True] * arguments.rounds:
                for name, way in ways.items():
                    speed = way()
                    if measured:
                        samples[name].append(speed)
            base = statistics.median(samples["bare loop"])
            for name, values in samples.items():
                median = statistics.median(values)
                print(
                    f"{streams:3} streams  {name:10} {median:9.1f} tok/s "
                    f"({min(values):.1f} to {max(values):.1f})  {median / base:.3f} of bare"
                )
                report.append(
                    {"streams": streams, "way": name, "median": median, "samples": values}
                )
    print(
        json.dumps(
            {"model": arguments.model.name, "tokens": arguments.tokens, "threads": threads}
            | {"results": report}
        )
    )


if __name__ == "__main__":
    main()
