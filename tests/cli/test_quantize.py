"""`worker quantize` as a user and as a program sees it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.models import ggufs
from worker.cli.main import main
from worker.gguf.split_name import all_files
from worker.model.config import load_config

TIMEOUT_S = 60


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A Llama in F32, alone in its folder."""
    (tmp_path / "in").mkdir()
    return ggufs.write_llama(tmp_path / "in" / "f32.gguf", embedding=256, feed_forward=512)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder."""
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def test_a_file_and_a_table(source: Path, out: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Size and mix go to stdout, progress to stderr, llama.cpp's log nowhere."""
    target = out / "m.gguf"
    assert main(["quantize", str(source), str(target), "q4_k_m"]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("Q4_K_M\n")
    assert "bits per weight" in captured.out
    assert all(line.startswith("quantizing m.gguf: ") for line in captured.err.splitlines())
    assert captured.err
    assert load_config(target).quant == "Q4_K_M"
    assert (target.stat().st_mode & 0o777) == (source.stat().st_mode & 0o777)


def test_json(source: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line of JSON with the size that the file has."""
    target = out / "m.gguf"
    assert main(["quantize", str(source), str(target), "Q8_0", "--json", "-t", "1"]) == 0
    output = capsys.readouterr().out
    assert output.count("\n") == 1
    assert json.loads(output)["file_bytes"] == target.stat().st_size


def test_a_dry_run_writes_nothing(
    source: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dry run tells the size, and what a real run would need."""
    words = ["quantize", str(source), str(out / "m.gguf")]
    assert main([*words, "IQ2_XS", "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "nothing was written" in output
    assert "needs --imatrix" in output
    assert main([*words, "Q8_0", "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert list(out.iterdir()) == []
    assert main([*words, "Q8_0", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["weights_bytes"] == planned["weights_bytes"]
    assert abs(made["file_bytes"] - planned["file_bytes"]) <= 512


def test_an_existing_file_needs_force(
    source: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --force a target that exists stays as it is."""
    target = out / "m.gguf"
    target.write_bytes(b"mine")
    words = ["quantize", str(source), str(target), "Q8_0"]
    assert main(words) == 2
    assert "pass --force" in capsys.readouterr().err
    assert target.read_bytes() == b"mine"
    assert main([*words, "--force"]) == 0
    assert load_config(target).quant == "Q8_0"


def test_a_pipe_is_not_replaced(
    source: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --force too a pipe or a device stays what it is."""
    target = out / "m.gguf"
    os.mkfifo(target)
    assert main(["quantize", str(source), str(target), "Q8_0", "--force"]) == 1
    assert "It is a device or a pipe." in capsys.readouterr().err
    assert target.is_fifo()


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["none.gguf", "m.gguf", "Q8_0"], 1, "error: NOT_FOUND: "),
        (["SRC", "m.gguf", "Q99"], 2, "error: USAGE: There is no quant level 'Q99'"),
        (["SRC", "m.gguf", "IQ1_S"], 2, "error: NEEDS_IMATRIX: "),
        (["SRC", "m.gguf", "Q4_0", "--imatrix", "none"], 1, "error: UNREADABLE: "),
        (["SRC", "SRC", "Q8_0", "--force"], 2, "error: USAGE: "),
        (["SRC", "m.gguf"], 2, "error: USAGE: "),
        (["SRC", "m.gguf", "Q8_0", "--threads", "none"], 2, "error: USAGE: "),
    ],
)
def test_mistakes(
    words: list[str], code: int, start: str, source: Path, out: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A mistake is one line on stderr, its exit code, nothing on stdout and no file."""
    monkeypatch.chdir(out)
    assert main(["quantize", *(str(source) if word == "SRC" else word for word in words)]) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(start)
    assert captured.err.count("\n") == 1
    assert list(out.iterdir()) == []


def test_split_files_in_large_letters(out: Path, tmp_path: Path) -> None:
    """A source whose files end in .GGUF is read whole."""
    whole = ggufs.write_llama(tmp_path / "m.gguf", splits=2, embedding=256, feed_forward=512)
    for name in all_files(whole.name):
        (tmp_path / name).rename(tmp_path / name.replace(".gguf", ".GGUF"))
    source = tmp_path / whole.name.replace(".gguf", ".GGUF")
    assert main(["quantize", str(source), str(out / "m.gguf"), "q8_0"]) == 0
    assert load_config(out / "m.gguf").quant == "Q8_0"
    assert main(["quantize", str(source), str(out / "n.gguf"), "q4_0", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ([], "Name one of TYPE, --fit SIZE, --bits B and --recipe FILE"),
        (["Q4_K_M", "--bits", "4.3"], "Name one of TYPE"),
        (["--bits", "4.3", "--fit", "6GiB"], "exclude each other"),
        (["--fit", "6 bananas"], "must be a size such as 6GiB"),
        (["--fit", "6GiB", "--cells", "q9"], "--cells must be one of"),
        (["--bits", "4.3", "--ctx-size", "512"], "--ctx-size is for --fit"),
        (["--recipe", "absent.json"], "absent.json cannot be read"),
        (["--bits", "4.3", "--imatrix", "absent.gguf"], "absent.gguf cannot be read"),
    ],
)
def test_a_fit_that_makes_no_sense(
    more: list[str], told: str, source: Path, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence with the next step, and nothing is written."""
    assert main(["quantize", str(source), str(out / "m.gguf"), *more]) != 0
    assert told in capsys.readouterr().err
    assert not list(out.iterdir())


def test_an_interrupted_fit_names_its_matrix(
    source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It can be passed with --imatrix; a dry run leaves none."""

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt(143)

    monkeypatch.setattr("worker.cli.quantize._follow", interrupt)
    target, matrix = out / "m.gguf", out / "m.imatrix.gguf"
    matrix.touch()
    for words, named in (([], True), (["--dry-run"], False), (["--imatrix", str(matrix)], False)):
        assert main(["quantize", str(source), str(target), "--bits", "4.3", *words]) == 143
        told = capsys.readouterr().err
        assert ("is kept: pass it with --imatrix" in told) == named
