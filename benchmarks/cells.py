"""What cells of a type harm, as `worker bench --cells` measures it and as llama-perplexity does.

    python -m benchmarks.cells MODEL TEXT LLAMA_PERPLEXITY [--cells q8_0,q4_0] [--windows 4]

Both compute the same windows of 2,048 tokens in batches of 512, with f16 cells as the reference.
The tool scores the second half of each window, the bench its last quarter; here its scoring
runs over both.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from pathlib import Path

import msgspec

from worker import machine
from worker.bench.quality.reference import ReferenceRows, condense, shape_of
from worker.bench.quality.scoring import WindowScores, compare, summarise
from worker.bench.quality.windows import chunk_outputs, cut, logits_of
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.model.config import load_config
from worker.settings import Settings

WIDTH, BATCH = 2048, 512
_FIGURES = {
    "KLD": re.compile(r"Mean +KLD: +(\S+) ± +(\S+)"),
    "same top": re.compile(r"Same top p: +(\S+) ± +(\S+)"),
}


def ours(model: Path, text: str, types: str, windows: int, place: Path) -> list[WindowScores]:
    """The bench's scoring of the second half of each window; f16 cells write the reference."""
    threads = machine.usable_cpus()
    settings = Settings(
        parallel=1, ctx_size=WIDTH + 256, threads=threads, draft="none", cache_type_k=types,
        cache_type_v=types, flash_attn="on",
    )  # fmt: skip
    outputs = chunk_outputs(load_config(model).vocab_size, BATCH)
    prepared = prepare(model, settings, sees=False)
    with load_backend(model, settings, prepared, chunk_outputs=outputs) as backend:
        chosen = cut(text, backend.vocab, WIDTH, 1 << 30, fewest=1)
        chosen = msgspec.structs.replace(chosen, tokens=chosen.tokens[:windows])
        if not place.exists():
            shape = shape_of(len(chosen.tokens) * chosen.num_scored, backend.vocab_size)
            ReferenceRows.create(place, chosen, shape)
        rows, found = ReferenceRows(place), list[WindowScores]()
        for index, (logits, targets) in enumerate(logits_of(backend, chosen, BATCH)):
            if types == "f16":
                rows.write(index, condense(logits, targets, rows.shape, seed=index))
            found.append(compare(logits, targets, rows.read(index)))
        return found


def last(windows: list[WindowScores], tokens: int) -> list[WindowScores]:
    """The scores of the last tokens of each window."""
    return [
        WindowScores(**{name: values[-tokens:] for name, values in scores.items()})
        for scores in map(msgspec.structs.asdict, windows)
    ]


def theirs(program: Path, words: list[str], base: Path) -> dict[str, tuple[float, float]]:
    """The tool's figures with their errors; without a base it is written."""
    more = ["--kl-divergence"] if base.exists() else []
    done = subprocess.run(
        [program, *words, "--kl-divergence-base", base, *more],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = done.stdout + done.stderr
    found = {name: pattern.search(told) for name, pattern in _FIGURES.items()}
    return {name: (float(hit[1]), float(hit[2])) for name, hit in found.items() if hit}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("llama_perplexity", type=Path)
    parser.add_argument("--cells", default="q8_0,q4_0")
    parser.add_argument("--windows", type=int, default=4)
    given = parser.parse_args()
    text = given.text.read_text()
    words = [
        "-m", str(given.model), "-f", str(given.text), "-c", str(WIDTH), "-b", str(BATCH),
        "-ub", str(BATCH), "-t", str(machine.usable_cpus()), "--chunks", str(given.windows),
        "-fa", "on",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base.bin"
        theirs(given.llama_perplexity, words, base)
        for types in ("f16", *given.cells.split(",")):
            tool = theirs(given.llama_perplexity, [*words, "-ctk", types, "-ctv", types], base)
            found = ours(given.model, text, types, given.windows, Path(scratch) / "rows")
            same, quarter = (summarise(part, WIDTH) for part in (found, last(found, BATCH)))
            kld, error = tool["KLD"]
            print(
                f"{types}: llama-perplexity {kld:.6f} ± {error:.6f}; the same tokens here "
                f"{same.kld_mean:.6f} ± {same.kld_mean_error:.6f} (sampling "
                f"{same.kld_sampling_error:.6f}); the last quarter {quarter.kld_mean:.6f} ± "
                f"{quarter.kld_mean_error:.6f}; same top {tool['same top'][0]:.2f} % and "
                f"{same.same_top:.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
