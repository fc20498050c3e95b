"""What a constraint adds to the choice of one token, and what is paid before the first one.

    python -m benchmarks.constraints.tokens VOCABULARY...

VOCABULARY: GGUF files, vocabularies alone are enough (llama.cpp's source has some in `models/`).
CPU time of one thread, so that other processes do not count. Logits are random with a standard
deviation of 2, so a token that is chosen first is mostly refused: the worst case.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from benchmarks.constraints.__main__ import CONSTRAINTS
from benchmarks.constraints.tools import TOOLS
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint, schema_constraint
from worker.llama.guides.guides import Guides
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

ROWS, TOKENS, TEXTS = 16, 60, 5


def compiling(guides: Guides) -> None:
    """Print what the vocabulary takes, and what the schemas of tools do."""
    begun = time.process_time()
    guides.matcher_of(Constraint(kind="regex", text="a"))
    print(f"  the vocabulary for llguidance: {time.process_time() - begun:.2f} s")
    seconds: list[float] = []
    for name, schema in TOOLS.items():
        begun = time.thread_time()
        guides.matcher_of(schema_constraint(schema, name))
        seconds.append(time.thread_time() - begun)
    median, most = np.median(seconds) * 1e3, max(seconds) * 1e3
    print(f"  {len(TOOLS)} schemas of tools: median {median:.1f} ms, at most {most:.1f}")


def choosing(vocab: Vocab, workspace: Workspace, guides: Guides, heat: float) -> None:
    """Print microseconds a token, with each constraint."""
    rng = np.random.default_rng(0)
    rows = [rng.normal(0, 2, vocab.size).astype(np.float32) for _ in range(ROWS)]
    taken: dict[str, list[float]] = {name: [] for name in CONSTRAINTS}
    for text in range(TEXTS):
        for name, constraint in CONSTRAINTS.items():
            sampling = SamplingParams(
                constraint=constraint, seed=text, temperature=heat, ignore_eos=True
            )
            request = Request(
                id="one",
                prompt=Prompt((5,)),
                params=GenerationParams(max_tokens=1, sampling=sampling),
            )
            sampler = Sampler(request, vocab, workspace, guides)
            for number in range(TOKENS):
                begun = time.thread_time()
                sampler.sample(rows[(number * 7 + text) % ROWS])
                taken[name].append(time.thread_time() - begun)
            sampler.free()
    for name, seconds in taken.items():
        mean, high = np.mean(seconds) * 1e6, np.percentile(seconds, 95) * 1e6
        print(f"  temperature {heat:g}: {name:20} mean {mean:7.0f} µs, 95 % below {high:7.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("vocabularies", nargs="+", type=Path)
    for path in parser.parse_args().vocabularies:
        with Weights(path, LoadOptions(n_gpu_layers=0, vocab_only=True)) as weights:
            vocab = Vocab(weights.handle, 4096)
            print(f"{path.stem}: {vocab.size:,} tokens")
            workspace = Workspace(vocab.size)
            guides = Guides(vocab)
            compiling(guides)
            for constraint in CONSTRAINTS.values():
                if constraint is not None:
                    guides.matcher_of(constraint)
            for heat in (0.0, 1.0):
                choosing(vocab, workspace, guides, heat)


if __name__ == "__main__":
    main()
