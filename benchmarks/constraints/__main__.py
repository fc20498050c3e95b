"""How much of the unconstrained speed a constraint leaves.

    python -m benchmarks.constraints MODEL... [--streams 1 8] [--tokens 64] [--rounds 7]

Real steps of the engine, greedy and drawn, without HTTP. Each round writes the same number of
tokens with each constraint and without one, in turns; a round's speed is compared with that of the
unconstrained text beside it. Shown: the median of those ratios, and tokens a second.

The weights are random, so what a model would say first is mostly refused: the worst case.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

from benchmarks.constraints.tools import TOOLS
from worker.engine.engine import Engine
from worker.engine.request import Request
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
}


def speed(
    backend: LlamaBackend, constraint: Constraint | None, streams: int, tokens: int, heat: float
) -> float:
    """Tokens a second of `streams` texts together, prompts not counted."""
    engine = Engine(backend, time.perf_counter)
    for number in range(streams):
        sampling = SamplingParams(
            temperature=heat, seed=number, ignore_eos=True, constraint=constraint
        )
        prompt = tuple(range(number + 5, number + 13))
        engine.add(Request(id=str(number), prompt=prompt, max_tokens=tokens + 1, sampling=sampling))
    written, begun, left = 0, 0.0, streams
    while not engine.is_idle:
        deltas = engine.step()
        for delta in deltas:
            if delta.error is not None:
                raise delta.error
            left -= not delta.text and delta.token is None
        if not begun and all(p.num_known > p.num_prompt for p in engine.snapshot.running):
            begun = time.perf_counter()
            continue
        written += len(deltas)
    return written / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--streams", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", nargs="+", default=list(CONSTRAINTS))
    args = parser.parse_args()
    for path in args.models:
        options = ContextOptions(num_cells=2048, num_slots=8, threads=args.threads)
        with LlamaBackend(path, LoadOptions(n_gpu_layers=0), options) as backend:
            backend.warm_up()
            for name in args.only:
                constraint = CONSTRAINTS[name]
                if constraint is not None:
                    backend.prepare(constraint)
            for streams in args.streams:
                for heat in (0.0, 1.0):
                    ratios: dict[str, list[float]] = {name: [] for name in args.only}
                    speeds: dict[str, list[float]] = {name: [] for name in args.only}
                    for _ in range(args.rounds):
                        for name in args.only:
                            alone = speed(backend, None, streams, args.tokens, heat)
                            held = speed(backend, CONSTRAINTS[name], streams, args.tokens, heat)
                            ratios[name].append(held / alone)
                            speeds[name].append(held)
                    print(
                        f"{path.stem} {backend.vocab_size:,} tokens, {streams} streams, "
                        f"temperature {heat:g}"
                    )
                    for name in args.only:
                        ratio, rate = map(statistics.median, (ratios[name], speeds[name]))
                        print(f"  {name:20} {ratio:5.3f}  {rate:6.1f} tok/s", flush=True)


if __name__ == "__main__":
    main()
