"""What a process holds while constraints come and go, as in hours of service.

    python -m benchmarks.constraints.churn [--lists 800] [--mebibytes 128]

Lists of 4,000 words that never come again, and between them schemas of tools that do. Two threads
compile, another one writes up to 24 tokens with a copy, as in the worker. Anonymous memory, and
what the C library has free in its heaps, in MB.
"""

from __future__ import annotations

import argparse
import ctypes
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from benchmarks.constraints.tools import TOOLS
from worker.budget import UNBOUNDED
from worker.demo import MODEL_PATH
from worker.grammar.constraint import Constraint, schema_constraint
from worker.llama.backend import LlamaBackend
from worker.llama.context import ContextOptions
from worker.llama.guides import guides as module
from worker.llama.guides.guides import Guides
from worker.llama.guides.matcher import TokenMask
from worker.llama.weights import LoadOptions

WORDS, FORMS, TOKENS, SHOWN = 4000, 2, 24, 50
SYLLABLES = ("ba", "do", "fi", "ga", "ho", "ka", "li", "mo", "na", "po", "ra", "se", "ti", "wo")


class MallInfo(ctypes.Structure):
    """Of glibc's malloc.h."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def anonymous() -> int:
    """Bytes of memory that no file stands behind."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) * 1024


def write(guides: Guides, constraint: Constraint, draw: random.Random, size: int) -> None:
    """Tokens that it allows, by chance."""
    mask = TokenMask(size)
    matcher = guides.matcher_of(constraint).copy()
    for _ in range(draw.randint(0, TOKENS)):
        matcher.fill(mask)
        tokens = np.flatnonzero(np.unpackbits(mask.words.view(np.uint8), bitorder="little")[:size])
        if matcher.is_done or not len(tokens):
            break
        matcher.accept(int(draw.choice(tokens)))
    matcher.free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--lists", type=int, default=800)
    parser.add_argument("--mebibytes", type=int, default=module.MAX_BYTES >> 20)
    asked = parser.parse_args()
    module.MAX_BYTES = asked.mebibytes << 20  # pyright: ignore[reportConstantRedefinition]
    look = ctypes.CDLL(None).mallinfo2
    look.restype = MallInfo
    draw, tools = random.Random(1), list(TOOLS.values())
    context = ContextOptions(num_cells=2048, num_slots=4, threads=1, threads_batch=1)
    with (
        LlamaBackend.open(MODEL_PATH, LoadOptions(), context) as backend,
        ThreadPoolExecutor(2) as formed,
        ThreadPoolExecutor(1) as engine,
    ):
        guides = backend.guides

        def prepared(schema: dict[str, object]) -> Constraint:
            constraint = schema_constraint(schema, "schema")
            guides.prepare(constraint, UNBOUNDED)
            return constraint

        print("lists  kept  anonymous  free")
        for number in range(1, asked.lists + 1):
            words = ["".join(draw.choices(SYLLABLES, k=4)) for _ in range(WORDS)]
            schemas = [{"enum": words}, *(draw.choice(tools) for _ in range(FORMS))]
            for constraint in list(formed.map(prepared, schemas)):
                engine.submit(write, guides, constraint, draw, backend.vocab_size).result()
            if number % SHOWN == 0:
                kept, free = len(guides._kept), look().fordblks  # pyright: ignore
                print(
                    f"{number:5} {kept:5} {anonymous() / 1e6:10.1f} {free / 1e6:5.1f}", flush=True
                )


if __name__ == "__main__":
    main()
