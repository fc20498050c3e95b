"""`worker bench` of a model that makes vectors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.embedders import Embedder
from worker.bench.embedding import Agreement, VectorLevel, agreement, recommend
from worker.bench.figures import figure
from worker.bench.sections import VectorSpeed


def circle(*degrees: float) -> np.ndarray:
    """Vectors of length 1 at these angles."""
    angles = np.radians(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def test_equal_vectors_agree_in_all() -> None:
    reference = circle(0, 10, 25, 47, 80)
    found = agreement(reference, reference)
    assert (found.cosine, found.least) == pytest.approx((1, 1))
    assert (found.neighbours, found.kendall) == pytest.approx((1, 1))


def test_what_is_compared() -> None:
    """Cosines of each text's own vectors; the order of the others, as seen from each text."""
    found = agreement(circle(0, 10, 40), circle(0, 30, 40))
    assert found.cosine == pytest.approx((2 + np.cos(np.radians(20))) / 3)
    assert found.least == pytest.approx(np.cos(np.radians(20)))
    assert found.neighbours == pytest.approx(2 / 3)  # of two others the nearest one
    # From 0 and from 40 the order is the same, from the middle one it is the opposite.
    assert found.kendall == pytest.approx((1 + 1 - 1) / 3)


def test_other_neighbours_are_seen() -> None:
    """Twelve texts, of which the nearest ten exclude one: another one for one text of twelve."""
    angles = [0.0, *range(20, 130, 10)]
    moved = [*angles]
    moved[-1] = -15.0  # the farthest from the first one is its nearest now
    found = agreement(circle(*moved), circle(*angles))
    assert 0.9 <= found.neighbours < 1
    assert found.kendall < 1


def level(quant: str, per_s: float, size: int, neighbours: float | None) -> VectorLevel:
    speed = figure([per_s * 0.999, per_s * 1.001])
    return VectorLevel(
        quant=quant, is_reference=neighbours is None, file=quant, size_bytes=size, bpw=8.0,
        speed=VectorSpeed(texts=9, tokens=9, texts_per_s=speed, tokens_per_s=speed, memory=None),
        agreement=None if neighbours is None
        else Agreement(cosine=1, least=1, neighbours=neighbours, kendall=1),
    )  # fmt: skip


def test_the_rule() -> None:
    """Near enough, then as fast as the fastest, then the smallest."""
    reference = level("F16", 100, 400, None)
    assert recommend([reference]) is None
    assert recommend([reference, level("Q4_0", 150, 100, 0.949)]) is None
    levels = [reference, level("Q8_0", 150, 200, 0.99), level("Q6_K", 148, 150, 0.97)]
    assert recommend(levels) == "Q6_K"
    assert recommend([*levels, level("Q4_0", 120, 90, 0.96)]) == "Q6_K"
    assert recommend([reference, level("Q8_0", 50, 200, 0.99)]) == "F16"


def test_the_command(tmp_path: Path) -> None:
    """Quantised here, embedded in processes of their own, compared; a text of its user's."""
    file = Embedder("bert").write(tmp_path / "bert.gguf")
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"the rain in spain {'stays ' * n}" for n in range(12)))
    command = [sys.executable, "-m", "worker", "bench", file, "--quants", "Q8_0", "--quick",
               "--text", text, "--out", tmp_path / "out"]  # fmt: skip
    run = subprocess.run([*command, "--json"], capture_output=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    first, other = report["levels"]
    assert (first["is_reference"], first["speed"]["texts"]) == (True, 12)
    assert first["agreement"] is None
    assert other["quant"] == "Q8_0"
    assert other["agreement"]["cosine"] > 0.99
    assert 0 < other["agreement"]["neighbours"] <= 1
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert "| Q8_0 |" in (tmp_path / "out" / "report.md").read_text().replace("→ ", "")


@pytest.mark.parametrize(
    ("text", "said"), [("one\ntwo\n", "has 2 lines, 3 are needed"), ("\n \n", "blank lines only")]
)
def test_texts_that_are_too_few(tmp_path: Path, text: str, said: str) -> None:
    """One sentence, exit code 2."""
    file = Embedder("bert").write(tmp_path / "bert.gguf")
    (tmp_path / "text.txt").write_text(text)
    command = [sys.executable, "-m", "worker", "bench", file, "--quants", "Q8_0"]
    run = subprocess.run([*command, "--text", tmp_path / "text.txt"], capture_output=True,
                         timeout=300, check=False)  # fmt: skip
    assert run.returncode == 2
    assert said in run.stderr.decode()
