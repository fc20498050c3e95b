"""A worker with a draft model or heads: what it says, what it counts, and what it refuses."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import http
from tests.support.metrics import scrape
from tests.support.models import ggufs
from tests.support.models.heads import WRITERS
from tests.support.programs.processes import Server, WorkerProcess, serving

BODY = {"prompt": [1, *range(5, 25)], "max_tokens": 60, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def drafted(tiny: Path) -> Generator[Server]:
    """A model that drafts for itself."""
    with serving("--model", tiny, "--draft-model", tiny, "-c", "2048", "-t", "1") as server:
        yield server


def test_replies_and_metrics_count(drafted: Server) -> None:
    """`timings` of the replies and the counters say how many tokens were guessed, and rightly."""
    timings = [drafted.post(BODY).json()["timings"] for _ in range(3)]
    guessed = sum(found["draft_n"] for found in timings)
    right = sum(found["draft_n_accepted"] for found in timings)
    assert 0 < right <= guessed
    counters = scrape(drafted.url)
    assert counters["worker_draft_tokens_total"] == guessed
    assert counters["worker_draft_tokens_accepted_total"] == right


def test_it_is_told(drafted: Server, tiny: Path) -> None:
    """/info names the draft model, /slots says that guesses are made."""
    info = http.get(f"{drafted.url}/info").json()
    assert (info["draft"], info["draft_model"]) == ("auto", tiny.stem)
    assert all(slot["speculative"] for slot in http.get(f"{drafted.url}/slots").json())


@pytest.mark.parametrize("who", ["mtp", "both"])
def test_heads(who: str, tmp_path: Path) -> None:
    """A file's own heads guess, alone or beside the text, and replies count it."""
    path = WRITERS["qwen35"](tmp_path / "m.gguf")
    with serving("--model", path, "--draft", who, "-c", "2048", "-t", "1") as server:
        timings = [server.post(BODY).json()["timings"] for _ in range(3)]
        assert sum(found["draft_n_accepted"] for found in timings) > 0
        info = http.get(f"{server.url}/info").json()
        assert (info["draft"], info["draft_model"]) == (who, None)


@pytest.mark.parametrize("words", ["--draft mtp", "--spec-type ngram-mod,draft-simple"])
def test_a_file_without_heads_is_refused(words: str, tiny: Path) -> None:
    """It exits with 2 before anything is loaded."""
    process = WorkerProcess("serve", "--model", str(tiny), *words.split(), "--port", "0")
    try:
        assert process.wait() == 2
    finally:
        process.end()
    assert "There is no draft model, and " in process.lines[-1]
    assert "cannot guess its own tokens: the file has no heads" in process.lines[-1]


def test_another_vocabulary_is_refused(tiny: Path, tmp_path: Path) -> None:
    """It exits with 2 before anything is loaded."""
    other = ggufs.write_llama(tmp_path / "other.gguf", vocab_size=500)
    process = WorkerProcess("serve", "--model", str(tiny), "-md", str(other), "--port", "0")
    try:
        assert process.wait() == 2
    finally:
        process.end()
    assert process.lines[-1].startswith(
        "error: USAGE: other.gguf cannot guess tokens for tiny.gguf"
    )
