"""How much of the unconstrained speed a constraint leaves.

    python -m benchmarks.constraints MODEL... [--streams 1 8] [--tokens 64] [--rounds 7] [--wall]

Real steps of the engine, greedy and drawn, without HTTP. Each round writes the same number of
tokens without a constraint and with each, in turns. Shown: the median step without one, as a share
of the median step with it, milliseconds of a step, and what the constraint adds to each token.
Times are CPU times of the engine's thread, which decodes alone: so other processes do not count.
`--wall` takes the clock's, with `--threads`.

The weights are random, so what a model would say first is mostly refused: the worst case.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.constraints.tools import TOOLS
from worker.budget import UNBOUNDED
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint, schema_constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.weights import LoadOptions

# One that does not end: 64 tokens or more, whatever the model likes.
LONG = {"type": "array", "items": TOOLS["create_issue"], "minItems": 100}
CONSTRAINTS: dict[str, Constraint | None] = {
    "none": None,
    "JSON schema": schema_constraint(LONG, "schema"),
    "any JSON": schema_constraint({"type": "array", "minItems": 1000}, "schema"),
    "regex [a-z ]{9999}": Constraint(kind="regex", text="[a-z ]{9999}"),
    "GBNF [a-z ]+": Constraint(kind="gbnf", text="root ::= [a-z ]+"),
    "recursive GBNF": Constraint(kind="gbnf", text='root ::= [a-z ] root | "."'),
}


def steps(
    backend: LlamaBackend,
    constraint: Constraint | None,
    streams: int,
    tokens: int,
    heat: float,
    clock: Callable[[], float],
) -> list[float]:
    """Seconds of each step in which `streams` texts got a token each."""
    backend.context.clear()
    engine = Engine(backend, time.perf_counter)
    for number in range(streams):
        sampling = SamplingParams(
            temperature=heat, seed=number, ignore_eos=True, constraint=constraint
        )
        prompt = tuple(range(number + 5, number + 13))
        engine.add(
            Request(
                id=str(number),
                prompt=Prompt(prompt),
                params=GenerationParams(max_tokens=tokens + 1, sampling=sampling),
            )
        )
    found: list[float] = []
    while not engine.is_idle:
        begun = clock()
        deltas = engine.step()
        seconds = clock() - begun
        for delta in deltas:
            if delta.error is not None:
                raise delta.error
        if len(deltas) == streams and all(delta.token is not None for delta in deltas):
            found.append(seconds)
    return found[1:]  # the first one read prompts too


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--wall", action="store_true")
    parser.add_argument("--only", nargs="+", default=list(CONSTRAINTS))
    args = parser.parse_args()
    clock = time.perf_counter if args.wall else time.thread_time
    for path in args.models:
        options = ContextOptions(
            num_cells=2048, num_slots=8, threads=args.threads, threads_batch=args.threads
        )
        with LlamaBackend.open(path, LoadOptions(n_gpu_layers=0), options) as backend:
            backend.warm_up()
            for name in args.only:
                constraint = CONSTRAINTS[name]
                if constraint is not None:
                    backend.prepare(constraint, UNBOUNDED)
            for streams in args.streams:
                for heat in (0.0, 1.0):
                    taken: dict[str, list[float]] = {name: [] for name in args.only}
                    for _ in range(args.rounds):
                        for name in args.only:
                            taken[name] += steps(
                                backend, CONSTRAINTS[name], streams, args.tokens, heat, clock
                            )
                    print(
                        f"{path.stem}: {backend.vocab_size:,} tokens, {streams} streams, "
                        f"temperature {heat:g}, {args.threads} threads"
                    )
                    alone = statistics.median(taken["none"])
                    for name in args.only:
                        seconds = statistics.median(taken[name])
                        added = (seconds - alone) / streams
                        print(
                            f"  {name:20} {alone / seconds:5.3f}  {seconds * 1e3:7.2f} ms a step  "
                            f"{added * 1e6:+7.0f} µs a token",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
