"""Greedy texts beside torch's, however the worker comes to them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checks.real.conftest import Real, complete
from tests.support.metrics import scrape
from tests.support.programs.processes import Server

SHORT, LONG = slice(0, 6), slice(6, 8)  # of the reference's prompts; the long ones have 700 tokens


def write(
    server: Server, real: Real, which: Sequence[int], *, at_once: int
) -> list[dict[str, Any]]:
    """Let a worker go on with prompts of the reference's, and compare each step."""
    chosen = [real.values.greedy[number] for number in which]
    with ThreadPoolExecutor(at_once) as pool:
        answers = list(
            pool.map(lambda g: complete(server, g.prompt, max_tokens=len(g.steps)), chosen)
        )
    found = real.comparison()
    followed = [
        found.follow(greedy, answer["choices"][0], real.values.margin)
        for greedy, answer in zip(chosen, answers, strict=True)
    ]
    found.check(real.values)
    assert sum(followed) >= len(chosen) * 16, f"{followed}: too little was compared"
    return answers


def cached(answer: dict[str, Any]) -> int:
    """How many tokens of the prompt were not read again."""
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("at_once", [1, 8])
def test_streams(server: Server, real: Real, at_once: int) -> None:
    """One after the other and eight at once: the reference's texts, up to near-ties."""
    write(server, real, range(8), at_once=at_once)


def test_drafts(real: Real) -> None:
    """Guesses from the text change nothing, and some are right."""
    with real.serving("-c", "8192", "-np", "8", "--draft", "ngram") as server:
        answers = write(server, real, range(8), at_once=1)
        answers += write(server, real, range(8), at_once=8)
    assert sum(answer["timings"]["draft_n_accepted"] for answer in answers) > 0


def test_a_cache_that_came_back(real: Real, tmp_path: Path) -> None:
    """From host memory, and after a restart from the disk, the text goes on as before."""
    options = ("-c", "2048", "-np", "1", "--cache-ram", "512", "--cache-dir", tmp_path)
    with real.serving(*options) as server:
        for number in (6, 7):  # one slot: the second prompt drives the first one's cells out
            write(server, real, [number], at_once=1)
        (back,) = write(server, real, [6], at_once=1)
        assert cached(back) > 0
        assert scrape(server.url)["worker_prefix_hits_totalmemory"] > 0
        server.process.terminate()
        assert server.wait() == 0
    with real.serving(*options) as server:
        (back,) = write(server, real, [7], at_once=1)
        assert cached(back) > 0
        assert scrape(server.url)["worker_prefix_hits_totaldisk"] > 0
