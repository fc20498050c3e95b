"""`worker imatrix` as a user sees it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from worker.cli.main import main
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.gguf.imatrix import read_collected

TIMEOUT_S = 60


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A short text."""
    path = tmp_path / "mine.txt"
    path.write_text(HELDOUT_PATH.read_text()[:4000])
    return path


def words(text: Path, target: Path, *more: str) -> list[str]:
    """The command line."""
    return ["imatrix", str(MODEL_PATH), "--text", str(text), "-o", str(target), "-t", "1", *more]


def test_a_file_and_a_table(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what there is; the same again computes nothing, and other texts are refused."""
    target = tmp_path / "m.gguf"
    assert main(words(text, target, "--chunk", "256")) == 0
    assert "chunks of 256 tokens" in capsys.readouterr().out
    chunks = read_collected(target).chunks
    assert chunks > 1
    assert main(words(text, target, "--chunk", "256", "--json")) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["begun"], made["chunks"]) == (chunks, chunks)
    assert main(words(text, target, "--chunk", "128")) == 2
    assert "of other texts or another model" in capsys.readouterr().err
    assert read_collected(target).chunk_size == 256
    assert main(words(text, target, "--chunk", "128", "--force", "--chunks", "1")) == 0
    assert read_collected(target).chunk_size == 128


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--chunk", "2048"], "too few for a chunk of 2048"),
        (["--text", "absent.txt"], "absent.txt cannot be read"),
        (["-o", "absent/m.gguf"], "There is no folder absent"),
    ],
)
def test_what_is_refused(
    more: list[str], told: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence and the next step; no file."""
    text.write_text(text.read_text()[:2000])
    target = tmp_path / "m.gguf"
    assert main(words(text, target, *more)) == 2
    error = capsys.readouterr().err
    assert told in error
    assert not target.exists()


@pytest.mark.parametrize("which", ["model", "text", "link"])
def test_what_is_read_is_never_replaced(
    which: str, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--force` replaces neither the model nor a text, not through a link either."""
    model = tmp_path / "model.gguf"
    model.write_bytes(MODEL_PATH.read_bytes())
    (tmp_path / "link.gguf").symlink_to(model)
    target = {"model": model, "text": text, "link": tmp_path / "link.gguf"}[which]
    before = target.read_bytes()
    line = ["imatrix", str(model), "--text", str(text), "-o", str(target), "--force", "-t", "1"]
    assert main(line) == 2
    assert "is the model or a text itself" in capsys.readouterr().err
    assert target.read_bytes() == before


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_keeps_whole_chunks(
    text: Path, tmp_path: Path, stop: signal.Signals
) -> None:
    """Ctrl-C or SIGTERM after the first chunks: the file has them, and stderr says how to go on."""
    target = tmp_path / "m.gguf"
    text.write_text(HELDOUT_PATH.read_text())
    command = [sys.executable, "-m", "worker", *words(text, target, "--chunk", "512")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        begun = process.stderr.readline()  # written after the first chunk
        process.send_signal(stop)
        rest = process.stderr.read()
        assert process.wait() == 128 + stop, begun + rest
    assert "about" in begun
    assert "the same command continues" in rest
    assert 1 <= read_collected(target).chunks < 55
