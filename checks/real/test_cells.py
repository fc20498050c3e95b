"""Types of KV cells beside each other, from end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from worker.cli.main import main
from worker.demo import HELDOUT_PATH


def test_cells_of_the_demo_model_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fewer bits diverge more and take less; the reference by nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = tmp_path / "text.txt"
    text.write_text(HELDOUT_PATH.read_text()[:9000])
    words = ["bench", "--cells", "f16,q8_0,q4_0", "--quick", "-t", "1", "--json", "--text"]
    assert main([*words, str(text), "--out", str(tmp_path / "out")]) == 0
    report = json.loads(capsys.readouterr().out)
    klds = [each["scores"]["divergence"]["kld_mean"] for each in report["levels"]]
    sizes = [each["bytes_per_cell"] for each in report["levels"]]
    assert math.isclose(klds[0], 0, abs_tol=1e-6)
    assert 0 < klds[1] < klds[2]
    assert sizes == sorted(sizes, reverse=True)
    assert report["context"] == 2048
    assert (tmp_path / "out" / "report.md").read_text().count("| F16 |") == 3
