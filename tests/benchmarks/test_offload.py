"""The comparison on a GPU, as far as it needs neither a GPU nor llama-server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks import offload
from benchmarks.adapters import wait
from benchmarks.offload import CASES, DEFAULT_SHAPES, PEER, REHEARSALS, WORKER, arguments
from benchmarks.peers.processes import PeerError, started

ALL = [(shape, case.name, streams) for case in CASES for shape in DEFAULT_SHAPES
       for streams in case.streams]  # fmt: skip


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Peers that are not started, but for their words, and that answer at once."""
    found: list[Sequence[str]] = []

    @contextmanager
    def beside(server: str, words: Sequence[str], folder: Path) -> Generator[Mapping[str, str]]:
        found.append(words)
        (folder / "worker.log").write_text("Loading\nout of memory\n")
        yield {WORKER: "a", PEER: "b"}

    def trace(command: Sequence[str], **given: Any) -> None:
        found.append(command)

    def write_model(path: Path, *_: Any) -> Path:
        path.write_bytes(b"weights")
        return path

    def ask(*_: Any, **given: Any) -> float:
        return 0.5

    monkeypatch.setattr(offload, "beside", beside)
    monkeypatch.setattr(offload, "write_model", write_model)
    monkeypatch.setattr(offload, "ask", ask)
    monkeypatch.setattr(subprocess, "run", trace)
    return found


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["offload", "llama-server", *words])
    return offload.main()


def kept(file: Path) -> list[tuple[str, str, int]]:
    return [(row["shape"], row["case"], row["streams"]) for row in json.loads(file.read_text())]


def test_a_rehearsal_runs_what_a_gpu_would(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, starts: list[Sequence[str]]
) -> None:
    """Each case with each number of streams and its options, and a trace of each number of them."""
    file = tmp_path / "rows.json"
    assert run(monkeypatch, "--rehearse", "--json", str(file)) == 0
    assert sorted(kept(file)) == sorted(ALL)
    traced = len(DEFAULT_SHAPES) * len(CASES[0].streams)
    assert len(starts) == len(CASES) * len(DEFAULT_SHAPES) + traced
    assert sum("q8_0" in words for words in starts) == len(DEFAULT_SHAPES)
    assert sum("benchmarks.steps" in words for words in starts) == traced


@pytest.mark.parametrize("shape", DEFAULT_SHAPES)
def test_a_rehearsal_is_short(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    """The prompts of all streams together have no more tokens than one that comes alone, or one
    each; the 1B model's are whole where they come alone; the cells are enough for them."""
    monkeypatch.setattr(sys, "argv", ["offload", "llama-server", "--rehearse"])
    given = arguments()
    for case in CASES:
        short = offload.shaped(case, shape, given)
        assert short.tokens == REHEARSALS[shape].tokens < case.tokens
        if shape == "llama-1b":
            assert short.prompt_of(1) == case.prompt_of(1) == case.prompt
        for streams in case.streams:
            assert short.prompt_of(streams) >= 1
            assert streams * short.prompt_of(streams) <= max(REHEARSALS[shape].prompt, streams)
            assert case.prompt_of(streams) == case.prompt
        assert short.cells >= max(case.streams) * (short.prompt_of(1) + short.tokens)


def test_a_failure_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    starts: list[Sequence[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Rows before and behind it are kept, it is named with the end of the log, and the exit code
    is 1."""
    file, failing = tmp_path / "rows.json", ("llama3-8b", "usual", 32)
    rows: list[int] = []

    measure = offload.measure

    def failing_measure(*given: Any) -> offload.OffloadResult:
        _, _, shape, case, streams, _ = given
        rows.append(len(kept(file)))
        if (shape, case.name, streams) == failing:
            raise PeerError("no memory is left")
        return measure(*given)

    monkeypatch.setattr(offload, "measure", failing_measure)
    assert run(monkeypatch, "--rehearse", "--json", str(file)) == 1
    assert sorted(kept(file)) == sorted(set(ALL) - {failing})
    assert set(rows) == set(range(len(ALL) - 1)), "each row is kept before the next one begins"
    said = capsys.readouterr().out
    assert "failed: llama3-8b, usual, 32 streams: PeerError: no memory is left" in said
    assert "out of memory" in said
    assert said.splitlines()[-1].endswith("failed: llama3-8b, usual, 32 streams")


def test_time_ends_it(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    starts: list[Sequence[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing begins after --minutes, the end names all of it, and that is no failure."""
    file = tmp_path / "rows.json"
    assert run(monkeypatch, "--rehearse", "--minutes", "0", "--json", str(file)) == 0
    assert (kept(file), starts) == ([], [])
    last = capsys.readouterr().out.splitlines()[-1]
    assert all(f"{shape}, {case.name}" in last for shape in DEFAULT_SHAPES for case in CASES)
    assert "llama-1b, trace of 64 streams" in last


def test_a_peer_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    """Its exit code is told at once."""
    command = [sys.executable, "-c", "raise SystemExit(3)"]
    with (
        started(command, tmp_path / "log") as process,
        pytest.raises(PeerError, match="exit code 3"),
    ):
        wait("http://127.0.0.1:9", process)
