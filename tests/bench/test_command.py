"""`worker bench` with mistakes, and what it does beside measuring; `checks/kills` runs it whole."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from tests.bench.report.reports import level, report
from tests.support.models import ggufs
from worker.bench.report.changes import Changes
from worker.bench.report.documents import write_report
from worker.cli.main import main


def run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: Path, *words: str
) -> tuple[int, str, str]:
    """The command in this process: code, stdout, stderr."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    code = main(["bench", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_clean_empties_the_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says how much that was; an empty one is fine too."""
    folder = tmp_path / "gguf-worker" / "bench" / "quants" / "x"
    folder.mkdir(parents=True)
    (folder / "y.gguf").write_bytes(bytes(4096))
    code, _, stderr = run(capsys, monkeypatch, tmp_path, "--clean")
    assert code == 0
    assert "4.0 KiB removed" in stderr
    assert not folder.exists()
    assert run(capsys, monkeypatch, tmp_path, "--clean")[0] == 0


def test_two_reports_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a table that names what is real, and as JSON."""
    paths: list[str] = []
    for name, per_s in (("a", 20.0), ("b", 30.0)):
        made = report(
            [level("F16", 1000, 10, 0.0, reference=True), level("Q8_0", 500, per_s, 0.01)]
        )
        paths.append(str(write_report(made, tmp_path / name)[0]))
    code, stdout, _ = run(capsys, monkeypatch, tmp_path, "--compare", *paths)
    assert code == 0
    line = next(
        line
        for line in stdout.splitlines()
        if line.startswith("Q8_0") and line.split()[1] == "write"
    )
    assert "+50.0%" in line
    assert line.rstrip().endswith("changed")
    assert "10.00 tok/s" not in line
    assert "20.00 tok/s" in line
    assert re.search(r"^\d+ of \d+ figures changed\.", stdout, re.MULTILINE)
    code, stdout, _ = run(capsys, monkeypatch, tmp_path, "--compare", *paths, "--json")
    assert code == 0
    changes = msgspec.json.decode(stdout, type=Changes)
    assert any(change.is_real for change in changes.changes)


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["no-such-file.gguf"], 1, "error: "),
        (["--quants", "Q9_K"], 2, "error: USAGE: There is no quant level"),
        (["--quick", "--thorough"], 2, "error: USAGE: "),
        (["--text", "no-such-text"], 2, "error: USAGE: no-such-text cannot be read"),
        (["--max-kld", "0"], 2, "error: USAGE: --max-kld must be above 0"),
        (["--max-kld", "inf"], 2, "error: USAGE: --max-kld must be above 0"),
        (["--cache-gb", "-1"], 2, "error: USAGE: --cache-gb must be from 0 to 1e+09"),
        (["--cache-gb", "nan"], 2, "error: USAGE: --cache-gb must be a number"),
        (["--quants", "fit:"], 2, "error: USAGE: The size of fit: must be a size such as 6GiB"),
        (["--quants", "fit:0.5"], 2, "error: USAGE: The size of fit:0.5 must be from 1 to 16"),
        (["--quants", "fit:4", "--no-quality"], 2, "error: USAGE: A fit is measured by its"),
        (["--quants", "fit:4", "--cells", "f16,q8_0"], 2, "error: USAGE: A fit is measured by"),
        (["--quants", "fit:4", "--pooling", "mean"], 2, "error: USAGE: An embedding model writes"),
        (["--quants", " ,"], 2, "error: USAGE: --quants names no level"),
        (["--imatrix", "no-such-matrix"], 1, "error: UNREADABLE: "),
        (["--out", "/proc"], 2, "error: USAGE: /proc cannot be written to: "),
        (["--compare", "a.json", "b.json"], 2, "error: USAGE: a.json cannot be read"),
        (["--out", "/dev/null/x"], 2, "error: USAGE: "),
        (["--time", "soon"], 2, "error: USAGE: --time must be a time such as 90s, 5m or 1h, not"),
        (["--time", "1s"], 2, "error: USAGE: --time must be from 10s to 168h, not 1s"),
        (["--questions", "no-such-file"], 2, "error: USAGE: no-such-file cannot be read"),
        (["--questions", __file__], 2, f"error: USAGE: Line 1 of {__file__} is no question"),
        (["--text", __file__, "--no-quality"], 2, "error: USAGE: --text is for quality"),
        (["--questions", "x", "--no-quality"], 2, "error: USAGE: --questions is for quality"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(
    words: list[str], code: int, start: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """One line on stderr, its exit code, nothing on stdout."""
    found, stdout, stderr = run(capsys, monkeypatch, tmp_path, *words)
    assert found == code
    assert stdout == ""
    assert stderr.startswith(start)
    assert stderr.count("\n") == 1
    assert not (tmp_path / "gguf-worker" / "bench" / "stages").exists()


def tiny(folder: Path, encoding: str) -> Path:
    """A small model on the folder's disk."""
    return ggufs.write_llama(folder / f"tiny-{encoding}.gguf", encoding=encoding, context=512)


def test_a_text_that_is_too_short_is_told_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the speed of anything is measured for nothing."""
    (tmp_path / "text").write_text("word")
    words = (str(tiny(tmp_path, "F16")), "--quants", "Q8_0", "--text", str(tmp_path / "text"))
    code, _, stderr = run(capsys, monkeypatch, tmp_path, *words)
    assert code == 2
    assert "too few to measure quality on" in stderr
    assert "F16: load" not in stderr
