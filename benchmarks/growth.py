"""How throughput and memory grow with streams and with context.

    python -m benchmarks.growth [--model FILE] [--streams 1 2 4 ... 64] [--contexts 128 ... 8192]
                                [--svg docs/growth.svg]

Each point is measured in a process of its own: the engine over llama.cpp, greedy, `--tokens`
tokens a stream after the prompts are read. Memory is the process's resident memory at the end.
Prints a table, writes the picture, ends in one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.curves import Curve, draw
from benchmarks.models import write_model
from benchmarks.shapes import SHAPES
from worker import log, machine
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions
from worker.memory.contexts import CELL_STEP

# Tokens that the first streams write while the last prompts are still read.
SPARE = 64
ROOT = Path(__file__).parent.parent


def measure(model: Path, streams: int, context: int, tokens: int) -> dict[str, float]:
    """Tokens per second of all streams together, seconds of prompts, resident bytes."""
    log.configure("console", "error")
    threads = machine.usable_cpus()
    options = ContextOptions(
        num_cells=streams * -(-(context + tokens + SPARE) // CELL_STEP) * CELL_STEP,
        num_slots=streams,
        threads=threads,
        threads_batch=threads,
    )
    with LlamaBackend.open(model, LoadOptions(), options) as backend:
        backend.warm_up()
        engine = Engine(backend, time.perf_counter, max_stall=60)
        usual = backend.vocab_size - 3
        for i in range(streams):
            # No two prompts begin alike: nothing is shared.
            prompt = tuple(3 + (i * 7_919 + j * 104_729) % usual for j in range(context))
            engine.add(
                Request(
                    id=str(i),
                    prompt=Prompt(prompt),
                    params=GenerationParams(
                        max_tokens=tokens + SPARE,
                        sampling=SamplingParams(temperature=0, ignore_eos=True),
                    ),
                )
            )
        begun = time.perf_counter()
        reading = {str(i) for i in range(streams)}
        while reading:
            reading.difference_update(delta.id for delta in engine.step())
        started = time.perf_counter()
        count = sum(len(engine.step()) for _ in range(tokens))
        ended = time.perf_counter()
        return {
            "tokens_per_second": count / (ended - started),
            "prompt_seconds": started - begun,
            "resident_bytes": float(machine.resident_bytes()),
        }


def in_child(model: Path, streams: int, context: int, tokens: int) -> dict[str, Any]:
    """`measure` in a process of its own."""
    words = [str(model), str(streams), str(context), str(tokens)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.growth", "--one", *words],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    point = json.loads(done.stdout.splitlines()[-1])
    print(
        f"{streams:3} streams at {context:5} tokens: {point['tokens_per_second']:7.1f} tok/s, "
        f"prompts {point['prompt_seconds']:6.1f} s, {point['resident_bytes'] / 1e6:6.0f} MB",
        flush=True,
    )
    return {"streams": streams, "context": context, **point}


def main() -> None:
    """Measure and draw."""
    parser = argparse.ArgumentParser(description="Throughput and memory over streams and context.")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--streams", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument(
        "--contexts", type=int, nargs="+", default=[128, 512, 1024, 2048, 4096, 8192]
    )
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--svg", type=Path, default=ROOT / "benchmarks" / "growth.svg")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        model, streams, context, tokens = arguments.one
        print(json.dumps(measure(Path(model), int(streams), int(context), int(tokens))))
        return
    model = arguments.model or ROOT / ".benchmarks" / "llama-1b-Q4_K_M.gguf"
    if not model.exists():
        model.parent.mkdir(exist_ok=True)
        write_model(model, SHAPES["llama-1b"], "Q4_K_M")
    wide = [in_child(model, n, 128, arguments.tokens) for n in arguments.streams]
    deep = [in_child(model, 1, n, arguments.tokens) for n in arguments.contexts]

    def curves(points: list[dict[str, Any]], key: str) -> tuple[Curve, Curve]:
        x = [float(point[key]) for point in points]
        return (
            Curve("tokens/s", x, [point["tokens_per_second"] for point in points]),
            Curve("GB resident", x, [point["resident_bytes"] / 1e9 for point in points]),
        )

    threads = machine.usable_cpus()
    arguments.svg.write_text(
        draw(
            f"{model.stem}, {threads} threads",
            [
                ("streams, 128 tokens of context each", *curves(wide, "streams")),
                ("tokens of context, one stream", *curves(deep, "context")),
            ],
        )
    )
    print(
        json.dumps(
            {"model": model.name, "threads": threads, "tokens": arguments.tokens}
            | {"streams": wide, "contexts": deep}
        )
    )


if __name__ == "__main__":
    main()
