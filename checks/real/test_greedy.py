"""Greedy texts beside torch's, however the worker comes to them."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from checks.real.conftest import Real, complete
from checks.real.values import GreedyText
from tests.support.metrics import scrape
from tests.support.programs.processes import Server

LONG = 6, 7  # those of the reference's prompts that have 700 tokens
BEGUN = 4  # tokens of an answer after which its conversation is left, and gone on with later


def write(
    server: Server, real: Real, which: Iterable[GreedyText], *, at_once: int = 1, least: int = 16
) -> list[dict[str, Any]]:
    """Let a worker go on with prompts of the reference's, and compare each step.

    least: steps of each that must be compared on average before texts part at near-ties
    """
    chosen = list(which)

    def ask(greedy: GreedyText) -> dict[str, Any]:
        return complete(server, greedy.prompt, max_tokens=len(greedy.steps))

    with ThreadPoolExecutor(at_once) as pool:
        answers = list(pool.map(ask, chosen))
    found = real.comparison()
    followed = [
        found.follow(greedy, answer["choices"][0], real.values)
        for greedy, answer in zip(chosen, answers, strict=True)
    ]
    found.check(real.values)
    assert sum(followed) >= len(chosen) * least, f"{followed}: too little was compared"
    return answers


def parts(greedy: GreedyText) -> tuple[GreedyText, GreedyText]:
    """The begin of an answer, and the same conversation gone on with."""
    begun = [step.ids[0] for step in greedy.steps[:BEGUN]]
    return (
        GreedyText(greedy.prompt, greedy.steps[:BEGUN]),
        GreedyText(greedy.prompt + begun, greedy.steps[BEGUN:36]),
    )


def cached(answer: dict[str, Any]) -> int:
    """How many tokens of the prompt were not read again."""
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


@pytest.mark.parametrize("at_once", [1, 8])
def test_streams(server: Server, real: Real, at_once: int) -> None:
    """One after the other and eight at once: the reference's texts, up to near-ties."""
    write(server, real, real.values.greedy, at_once=at_once)


def test_drafts(real: Real) -> None:
    """Guesses from the text change nothing, and some are right."""
    with real.serving("-c", "8192", "-np", "8", "--draft", "ngram") as server:
        answers = write(server, real, real.values.greedy, at_once=2)
    assert sum(answer["timings"]["draft_n_accepted"] for answer in answers) > 0


def test_a_cache_that_came_back(real: Real, tmp_path: Path) -> None:
    """From host memory, and after a restart from the disk, a conversation goes on as before."""
    options = ("-c", "2048", "-np", "1", "--cache-ram", "512", "--cache-dir", tmp_path)
    first, second = (parts(real.values.greedy[number]) for number in LONG)
    with real.serving(*options) as server:
        # One slot: the second conversation drives the first one's cells out.
        write(server, real, [first[0], second[0]], least=1)
        (back,) = write(server, real, first[1:], least=1)
        assert cached(back) > 600
        assert scrape(server.url)["worker_prefix_hits_totalmemory"] > 600
        server.process.terminate()
        assert server.wait() == 0
    with real.serving(*options) as server:
        (back,) = write(server, real, second[1:], least=1)
        assert cached(back) > 600
        assert scrape(server.url)["worker_prefix_hits_totaldisk"] > 600
