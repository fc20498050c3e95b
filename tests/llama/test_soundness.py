"""What is remembered of the proof of the installed library, and what is not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from worker.errors import BackendError
from worker.llama import soundness
from worker.llama.proof.child import ROW_COUNTS, WAYS
from worker.llama.soundness import Soundness

FOUND = Soundness(features=("AVX2",), proven="2026-11-27T05:00:00Z", seconds=0.5)


def test_a_proof_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By library and CPU: the same ones are not proven again, others are."""
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path])
    soundness.remember(soundness.key(), FOUND)
    again = soundness.Proof()
    assert again.is_known
    assert again.verdict() == FOUND
    before = soundness.key()
    monkeypatch.setattr(soundness.machine, "cpu", lambda: ("another", "sse4_2"))
    assert soundness.key() != before
    assert soundness.recall(soundness.key()) is None


def test_what_cannot_be_read_is_proven_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file, or one of another version, is none; nor is a pipe that nobody writes to."""
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path])
    path = tmp_path / f"{soundness.key()}.json"
    path.write_text('{"features": [')
    assert soundness.recall(soundness.key()) is None
    path.unlink()
    os.mkfifo(path)
    assert soundness.recall(soundness.key()) is None


def test_no_folder_to_remember_in_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who can write nowhere proves at each start."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path / "file" / "folder"])
    soundness.remember("0", Soundness(features=(), proven="", seconds=0))
    assert soundness.recall("0") is None


class _Killed(soundness._ProofChild):  # pyright: ignore[reportPrivateUsage]
    def verdict(self) -> Soundness:
        os.kill(self._child.pid, signal.SIGKILL)
        return super().verdict()


def test_a_killed_proof_says_nothing_of_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as for want of memory: it is an error, and nothing is remembered."""
    monkeypatch.setattr(soundness, "_folders", lambda: [tmp_path])
    monkeypatch.setattr(soundness, "_ProofChild", _Killed)
    proof: Any = soundness.Proof()
    with pytest.raises(BackendError, match=r"self-test of llama.cpp on this CPU ended .* SIGKILL"):
        proof.verdict()
    assert list(tmp_path.iterdir()) == []


def test_all_ways_meet_all_rows() -> None:
    """Fused and plain attention, cells in F16 and in Q8_0."""
    assert {(way.attention, way.cells) for way in WAYS} == {
        (attention, cells) for attention in ("fused", "plain") for cells in ("f16", "q8_0")
    }
    assert ROW_COUNTS == (1, 4, 8, 16, 64, 512)
