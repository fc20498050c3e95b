"""How good a fit is: `python benchmarks/best_file.py MODEL TEXT [SECONDS [PRESET...]]`.

One estimate of a model, then for each preset a fit of the same bytes. It prints the divergence of
both on text that nothing was chosen by, their ratio, and the rank correlation of the estimate with
what was measured.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from worker import machine
from worker.bench.fit.fit import BestFit, FitOptions, label_of
from worker.bench.fit.recipe import FORMAT, MixRecipe, digest
from worker.errors import BackendError
from worker.llama.quantize.plan import QuantizeOptions, plan
from worker.llama.quantize.target import quantize
from worker.settings import Settings

PRESETS = (
    "IQ3_XXS", "IQ3_XS", "Q3_K_S", "IQ3_M", "Q3_K_M",
    "Q3_K_L", "IQ4_XS", "Q4_0", "Q4_K_S", "Q4_K_M",
)  # fmt: skip

T = TypeVar("T")


def result(events: Generator[Any, None, T]) -> T:
    """What a generator returns."""
    while True:
        try:
            next(events)
        except StopIteration as end:
            return end.value


def ranks(values: list[float]) -> np.ndarray:
    """The place of each in order."""
    return np.argsort(np.argsort(values))


def main(source: Path, text: Path, seconds: float, presets: Sequence[str]) -> None:
    threads = machine.usable_cpus()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        options = FitOptions(
            source=source, target=work / "fit.gguf", texts=(text.read_text(),), dataset=text.name,
            settings=Settings(threads=threads), threads=threads, bits=5.0, seconds=seconds,
            allow_requantize=True,
        )  # fmt: skip
        fit = BestFit(options)
        estimate, imatrix, probes = result(fit.estimate(work))
        print(f"{probes} probes")
        elements = {tensor.name: tensor.elements for tensor in fit.header.tensors}
        result(fit.score("", source, work / "rows", writes=True))
        estimated, measured = list[float](), list[float]()
        fits, best = list[float](), list[float]()
        sizes: list[tuple[int, float]] = []
        for name in presets:
            plain = QuantizeOptions(imatrix=imatrix, allow_requantize=True)
            try:
                made = plan(source, name, options=plain)
            except BackendError:
                continue
            preset = fit.mix_of(name, estimate, made.encodings)
            encodings, _ = result(fit.choice(estimate, imatrix, preset.file_bytes))
            recipe = MixRecipe(
                format=FORMAT, type=label_of(encodings, elements), encodings=encodings,
                imatrix="", imatrix_sha256=digest(imatrix), dataset="", budget=0,
            )  # fmt: skip
            ours = fit.mix_of("fit", estimate, encodings)
            found: list[float] = []
            for mix, kind, how in (
                (preset, name, plain), (ours, recipe.type, recipe.options(imatrix))
            ):  # fmt: skip
                path = work / "candidate.gguf"
                quantize(source, path, kind, threads=threads, options=how, replace=True)
                found.append(result(fit.score("", path, work / "rows")).kld_mean)
                estimated.append(mix.estimate)
                measured.append(found[-1])
            sizes.append((preset.file_bytes, found[0]))
            fits.append(found[1])
            best.append(min(kld for size, kld in sizes if size <= preset.file_bytes))
            print(
                f"{name:8} {preset.bits:.2f} bits: preset {found[0]:.5f} (est. "
                f"{preset.estimate:.5f}), fit {found[1]:.5f} (est. {ours.estimate:.5f}), "
                f"fit / best preset {fits[-1] / best[-1]:.2f}",
                flush=True,
            )
        ratios = np.array(fits) / np.array(best)
        rho = np.corrcoef(ranks(estimated), ranks(measured))[0, 1]
        print(
            f"mean ratio {ratios.mean():.2f}, worst {ratios.max():.2f}, rank correlation {rho:.3f}"
        )


if __name__ == "__main__":
    model, text, *more = sys.argv[1:]
    main(Path(model), Path(text), float((more or ["300"])[0]), more[1:] or PRESETS)
