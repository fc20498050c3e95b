"""Seconds of a call with five arguments, with what must come written at once and without.

    python -m benchmarks.constraints.calls MODEL... --rounds N

One greedy stream from its first token to its last, in turns; white space is made unlikely, which a
model that was not trained for calls goes on with. Medians, with the least and the most.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median
from typing import Any

from worker.budget import UNBOUNDED
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint, schema_constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

ASKED = "Find two people a premium flight to Lisbon on the first of March 2025, with checked bags."
TEXT = {"type": "string", "maxLength": 12}
ARGUMENTS: dict[str, Any] = {
    "destination_city": TEXT,
    "departure_date": TEXT,
    "number_of_travellers": {"type": "integer", "minimum": 1, "maximum": 9},
    "cabin_class": {"enum": ["economy", "premium_economy", "business", "first"]},
    "include_checked_baggage": {"type": "boolean"},
}


def call() -> Constraint:
    """Of the tool `search_available_flights`."""
    arguments = {"type": "object", "properties": ARGUMENTS, "required": list(ARGUMENTS)}
    parts = {"name": {"const": "search_available_flights"}, "arguments": arguments}
    schema = {"type": "object", "properties": parts, "required": list(parts)}
    return schema_constraint(schema, "call")


def written(backend: LlamaBackend, constraint: Constraint) -> tuple[float, int, int, str]:
    """Seconds, tokens, steps, text."""
    vocab = backend.vocab
    blanks = (token for token, piece in enumerate(vocab.pieces) if piece and not piece.strip())
    sampling = SamplingParams(
        temperature=0, constraint=constraint, logit_bias=tuple((token, -20.0) for token in blanks)
    )
    prompt = tuple(vocab.tokenize(ASKED, add_special=True, parse_special=True))
    backend.context.clear()
    engine = Engine(backend, time.perf_counter)
    params = GenerationParams(max_tokens=400, sampling=sampling)
    engine.add(Request(id="call", prompt=Prompt(prompt), params=params))
    text, count, seconds = "", 0, 0.0
    while not engine.is_idle:
        for delta in engine.step():
            text, count = text + delta.text, count + (delta.token is not None)
            if delta.is_last:
                assert delta.timings is not None
                seconds = delta.timings.finished - delta.timings.first_token
    return seconds, count, engine.snapshot.num_steps, text


def nothing(sampler: Any) -> list[int]:
    """What must come where nobody looks ahead."""
    return []


def main() -> None:
    """Print both ways of each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    threads = options.threads
    context = ContextOptions(num_cells=2048, num_slots=1, threads=threads, threads_batch=threads)
    for path in options.models:
        with LlamaBackend.open(path, LoadOptions(), context) as backend:
            ahead, constraint = backend.ahead, call()
            backend.prepare(constraint, UNBOUNDED)
            found: dict[str, list[tuple[float, int, int, str]]] = {"at once": [], "one by one": []}
            for _ in range(options.rounds + 1):
                for name, runs in found.items():
                    backend.ahead = ahead if name == "at once" else nothing
                    runs.append(written(backend, constraint))
            print(f"{path.stem}: {found['at once'][0][3]}")
            for name, (_, *runs) in found.items():  # the first one warms up
                seconds = sorted(run[0] * 1e3 for run in runs)
                middle, (_, count, steps, _) = median(seconds), runs[0]
                print(
                    f"  {name:10} {middle:7.1f} ms ({seconds[0]:.1f} to {seconds[-1]:.1f}), "
                    f"{count} tokens in {steps} steps, {count / middle * 1e3:.0f} tok/s"
                )


if __name__ == "__main__":
    main()
