"""One prompt, one seed, alone: one text, whatever the worker has done before and beside."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from checks.real.conftest import Real, complete
from tests.support.programs.processes import Server

# Lengths of prompts: less than one piece of a prompt, several, and longer than a stream.
LENGTHS = (40, 625, 3_000)
OPTIONS = ("-c", "8192", "-np", "4")
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "drawn": {"temperature": 0.8, "top_p": 0.95, "seed": 7},
}


def prompt_of(real: Real, length: int) -> list[int]:
    """Of the reference's text."""
    text = real.values.text
    return (text * (length // len(text) + 1))[:length]


def answers(server: Server, real: Real, times: int, lengths: Iterable[int]) -> dict[str, set[str]]:
    """Each prompt so many times in each way, in turns: the texts and their probabilities."""
    found: dict[str, set[str]] = {}
    for _ in range(times):
        for length in lengths:
            for way, sampling in WAYS.items():
                body = {**sampling, "max_tokens": 16, "ignore_eos": True}
                choice = complete(server, prompt_of(real, length), **body)["choices"][0]
                said = f"{choice['text']} {choice['logprobs']['token_logprobs']}"
                found.setdefault(f"{length} {way}", set()).add(said)
    return found


def use(server: Server, real: Real) -> None:
    """Others come: shorter and longer, with the same beginning, one by one and all at once."""
    lengths = (25, 300, 627, 2_500, 700)
    for length in lengths:
        complete(server, prompt_of(real, length), max_tokens=5)
        complete(server, [9, *prompt_of(real, length)], max_tokens=5)
    with ThreadPoolExecutor(4) as pool:
        list(
            pool.map(
                lambda length: complete(server, [8, *prompt_of(real, length)], max_tokens=20),
                lengths,
            )
        )


@contextlib.contextmanager
def neighbours() -> Generator[None]:
    """Two processes that never wait."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while 1: pass"]))
            stack.callback(process.kill)
        yield


@pytest.mark.parametrize("options", [(), ("--cache-ram", "0")], ids=["kept", "not kept"])
def test_one_text(real: Real, options: tuple[str, ...]) -> None:
    """200 times in all, in fresh workers, in used ones and in one beside busy processes."""
    every: list[dict[str, set[str]]] = []
    for length in LENGTHS:
        with real.serving(*OPTIONS, *options) as server:
            every.append(answers(server, real, 1, [length]))
    with real.serving(*OPTIONS, *options) as server:
        for _ in range(3):
            every.append(answers(server, real, 5, LENGTHS))
            use(server, real)
        with neighbours():
            every.append(answers(server, real, 3, LENGTHS))
    for length in LENGTHS:
        for way in WAYS:
            name = f"{length} {way}"
            said = set[str]().union(*(found.get(name, set()) for found in every))
            assert len(said) == 1, f"{name}: {len(said)} texts"
