"""The process that computes: `python -m worker.llama.proof.child`.

A wrong instruction or a fault in native code ends this process and no other. It sends first what
the library is compiled for, then what it loads, each case before it is computed, a WrongCase where
it is wrong, and at the end a Done.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from worker import log
from worker.child import Parent
from worker.llama import library
from worker.llama.context import Context, ContextOptions
from worker.llama.library import native
from worker.llama.proof.blocks import PROVEN, Rows32
from worker.llama.proof.model import ROWS, TOKENS, ProofModel
from worker.llama.soundness import Done, Features, Loading, ProofCase, ProofFrame, WrongCase
from worker.llama.weights import LoadOptions, Weights

# From vectors over small products to whole tiles.
ROW_COUNTS = (1, 4, 8, 16, 64, ROWS)
_TWO_THREADS = 8  # rows that two threads compute: tiles are set up by each
# What ggml lists beside them: parts of the build.
_NO_FEATURES = {"LLAMAFILE", "OPENMP", "REPACK", "ACCELERATE"}
# Squared error over squared logits. Rounded activations (8 bits a value) and cells give up to 0.001
# in all rows together and 0.02 in one; a block that is read at a wrong place gives 0.1 and more.
MAX_ERROR, MAX_ROW_ERROR = 0.01, 0.15


class ProofWay(msgspec.Struct, frozen=True):
    """How attention is computed, and what its cells hold."""

    attention: Literal["fused", "plain"]
    cells: Literal["f16", "q8_0"]


# Values are kept as they are where attention is plain: llama.cpp quantises them for the fused one.
WAYS = (
    ProofWay("fused", "f16"),
    ProofWay("fused", "q8_0"),
    ProofWay("plain", "f16"),
    ProofWay("plain", "q8_0"),
)


# Takes what is found at once: what follows may be the end of the process.
Say = Callable[[ProofFrame], None]


def prove(say: Say) -> bool:
    """Compute all cases; False after the first wrong one."""
    cases, worst = 0, 0.0
    say(Features(features()))
    with tempfile.TemporaryDirectory(prefix="gguf-worker-proof-") as folder:
        _load_metadata(say, Path(folder))
        for number, name in enumerate(PROVEN):
            for error in _errors(say, name, WAYS[0], WAYS[1 + number % 3], Path(folder)):
                if error > MAX_ERROR:
                    say(WrongCase(error, MAX_ERROR))
                    return False
                cases, worst = cases + 1, max(worst, error)
    say(Done(cases, worst))
    return True


def _load_metadata(say: Say, folder: Path) -> None:
    """Load a model without its weights: all but kernels has a part in it, such as the C++ runtime
    of each library, through which llama.cpp prints what the file says."""
    say(Loading("a file's metadata"))
    path = folder / "metadata.gguf"
    ProofModel(PROVEN[0]).write(path)
    Weights(path, LoadOptions(n_gpu_layers=0, devices=(), vocab_only=True)).close()


def features() -> tuple[str, ...]:
    """CPU features that the library uses; it says them as "CPU : AVX2 = 1 | AMX_INT8 = 1 | "."""
    library.start()
    said = (native.llama_print_system_info() or b"").decode()
    _, _, cpu = said.rpartition("CPU :")  # those of other backends stand before it
    found = [part.partition("=") for part in cpu.split("|")]
    names = [name.strip() for name, _, value in found if value.strip() not in ("", "0")]
    return tuple(name for name in names if name not in _NO_FEATURES)


def _errors(
    say: Say, name: str, first: ProofWay, second: ProofWay, folder: Path
) -> Iterator[float]:
    """The error of each case of an encoding. All ways meet all numbers of rows, each with a third
    of the encodings, and the first with each one: kernels of weights know nothing of attention."""
    say(ProofCase(name, 0))
    model, path = ProofModel(name), folder / f"{name}.gguf"
    right = model.logits()
    model.write(path)
    with Weights(path, LoadOptions(n_gpu_layers=0, devices=())) as weights:
        for way in (first, second):
            with _context(weights, way) as context:
                for rows in ROW_COUNTS:
                    say(ProofCase(name, rows, way.attention, way.cells))
                    yield _error(_compute(context, rows), right[:rows])
    path.unlink()


def _context(weights: Weights, way: ProofWay) -> Context:
    is_fused = way.attention == "fused"
    return Context(
        weights,
        ContextOptions(
            num_cells=ROWS,
            num_slots=1,
            chunk_outputs=ROWS,
            cache_type_k=way.cells,
            cache_type_v=way.cells if is_fused else "f16",
            flash_attn="on" if is_fused else "off",
        ),
    )


def _compute(context: Context, rows: int) -> Rows32:
    """The logits of the first `rows` tokens, computed in one batch."""
    context.clear()
    context.batch.clear()
    context.batch.add(TOKENS[:rows], 0, 0)
    context.batch.outputs[:rows] = 1
    threads = 2 if rows == _TWO_THREADS else 1
    context.set_threads(threads, threads)
    context.decode()
    return np.stack([context.logits(row) for row in range(rows)])


def _error(found: Rows32, right: Rows32) -> float:
    """Squared error over squared logits, of all rows; 1 and more where one row is far off."""
    errors = ((found - right) ** 2).sum(1)
    sizes = (right**2).sum(1)
    if not np.isfinite(errors).all():
        return float("inf")
    worst = float((errors / sizes).max())
    return float(errors.sum() / sizes.sum()) if worst <= MAX_ROW_ERROR else max(1.0, worst)


def main() -> None:
    """Prove, and leave with 0 where all is right."""
    parent = Parent()
    log.configure("console", "error")
    parent.leave_with()
    os._exit(0 if prove(lambda found: parent.send(msgspec.json.encode(found))) else 1)


if __name__ == "__main__":
    main()
