"""One small fit from end to end, and a matrix beside the one of the peer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from worker.bench.fit.fit import BestFit, FitOptions, FitReport, matrix_beside, recipe_beside
from worker.bench.fit.recipe import read_recipe
from worker.child import command
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.gguf.splits import open_header
from worker.llama.quantize.target import quantize
from worker.model.config import load_config
from worker.settings import Settings

_PEAK = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def test_a_fit_stays_within_its_memory(tmp_path: Path) -> None:
    """No process of it holds more than what it said."""
    words = ["quantize", str(MODEL_PATH), str(tmp_path / "fit.gguf"), "--bits", "4.5", "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-c", _PEAK, *command("worker", *words, "--time", "10s", "-t", "1")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    told = re.search(r"([\d.]+) MiB of memory at most", done.stderr)
    assert told is not None
    assert int(done.stdout) / 1024 <= float(told[1])


def test_a_fit_is_written_measured_and_made_again(tmp_path: Path) -> None:
    """The file has the size, a matrix and a recipe beside it, and no measured preset is better;
    the recipe makes the same bytes."""
    target = tmp_path / "fit.gguf"
    options = FitOptions(
        source=MODEL_PATH, target=target, texts=(HELDOUT_PATH.read_text(),), dataset="heldout.txt",
        settings=Settings(threads=1), threads=1, bits=4.9, seconds=120.0,
    )  # fmt: skip
    *_, report = BestFit(options).events()
    assert isinstance(report, FitReport)
    assert report.fit.kld is not None
    rivals = [mix.kld for mix in report.presets if mix.kld is not None]
    assert len(rivals) == 2
    assert report.kept
    assert report.fit.kld <= min(rivals)
    matrix, recipe_file = matrix_beside(target), recipe_beside(target)
    assert {path.name for path in tmp_path.iterdir()} == {
        target.name, matrix.name, recipe_file.name
    }  # fmt: skip
    assert load_config(target).bits_per_weight == pytest.approx(report.fit.bits, abs=0.01)
    assert 4.8 < report.fit.bits <= 4.9
    recipe, again = read_recipe(recipe_file, open_header(MODEL_PATH)), tmp_path / "again.gguf"
    quantize(MODEL_PATH, again, recipe.type, threads=2, options=recipe.options(matrix))
    assert again.read_bytes() == target.read_bytes()
