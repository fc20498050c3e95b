"""One prompt, one seed, alone: one text, whatever the worker has done before and beside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from checks.real.conftest import PATIENCE_S, Real, complete
from tests.support import http
from tests.support.programs.processes import Server

# With EXHAUSTIVE=1 200 texts, which take a quarter of an hour.
EXHAUSTIVE = bool(os.environ.get("EXHAUSTIVE"))
# Lengths of prompts -> how often each is asked, and as often again after others came: less than
# one piece of a prompt, several, and longer than a stream.
LENGTHS = {80: 15, 625: 10, 3_000: 3} if EXHAUSTIVE else {80: 2, 625: 2}
TURNS, BESIDE = (3, 5) if EXHAUSTIVE else (2, 1)
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, "seed": 7},
    "drawn": {"temperature": 0.8, "top_p": 0.95, "seed": 7},
}
# More than a wide step has, together with the prompt.
NUM_WRITTEN = 160
# Alone, with fused and with standard attention.
NUM_ALONE = {"on": 1_000, "off": 320}
Texts = dict[tuple[int, str], list[str]]
Marked = tuple[int, float, int | None]


def prompt_of(real: Real, length: int) -> list[int]:
    """Of the reference's text."""
    return real.values.text[:length]


def ask(server: Server, real: Real, said: Texts, length: int, times: int = 1) -> None:
    """The same prompt so many times in each way: its text and its probabilities."""
    for _ in range(times):
        for way, sampling in WAYS.items():
            body = {**sampling, "max_tokens": 16, "ignore_eos": True}
            choice = complete(server, prompt_of(real, length), **body)["choices"][0]
            text = f"{choice['text']} {choice['logprobs']['token_logprobs']}"
            said.setdefault((length, way), []).append(text)


def use(server: Server, real: Real) -> None:
    """Others come: shorter and longer, with the same beginning, one by one and all at once."""
    prompts = [prompt_of(real, length) for length in (25, 300, 627, 2_500, 700)]
    for prompt in prompts:
        complete(server, prompt, max_tokens=5)
        complete(server, [9, *prompt], max_tokens=5)

    def answer(prompt: list[int]) -> None:
        complete(server, [8, *prompt], max_tokens=20)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(answer, prompts))


@contextlib.contextmanager
def neighbours() -> Generator[None]:
    """Two processes that never wait."""
    with contextlib.ExitStack() as stack:
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while 1: pass"]))
            stack.callback(process.kill)
        yield


@pytest.mark.parametrize("kept", ["kept", "not kept"])
def test_one_text(real: Real, kept: str) -> None:
    """In fresh workers, in a used one, and beside busy processes."""
    if real.name == "gemma3":
        pytest.skip("a window goes on from wherever a state was kept: see docs/limits.md")
    options = ["-c", "8192", "-np", "4", *(["--cache-ram", "0"] if kept == "not kept" else [])]
    said: Texts = {}
    for length in LENGTHS:
        with real.serving(*options) as server:
            ask(server, real, said, length)
    with real.serving(*options) as server:
        for _ in range(TURNS):
            for length, times in LENGTHS.items():
                ask(server, real, said, length, times)
            use(server, real)
        with neighbours():
            for length in LENGTHS:
                ask(server, real, said, length, BESIDE)
    assert sum(map(len, said.values())) >= (200 if EXHAUSTIVE else 20)
    assert {key: len(set(texts)) for key, texts in said.items()} == dict.fromkeys(said, 1)


def marked(
    server: Server, prompt: list[int], written: list[Marked], count: int = NUM_WRITTEN
) -> list[Marked]:
    """The tokens that come behind those that another worker wrote, up to so many, their
    probabilities, and the steps that they were computed in."""
    known = {"tokens": {"0": [each[0] for each in written]},
             "steps": {"0": [each[2] for each in written]}}  # fmt: skip
    told = json.dumps(known).encode() if written else b""
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True,
            "logprobs": 0, "stream": True}  # fmt: skip
    headers = {"x-relay": f"{'0' * 32} 1700000000", "x-relay-written": str(len(told))}
    answer = http.post(
        server.url + "/v1/completions", content=told + json.dumps(body).encode(), headers=headers,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert answer.status_code == 200, answer.text
    marks = [json.loads(each) for each in re.findall(r"^:w (\[0,.*\])$", answer.text, re.MULTILINE)]
    steps = [mark[3] if len(mark) > 3 else None for mark in marks]
    scores = re.findall(r'"token_logprobs":\[([^\]]+)\]', answer.text)
    numbers = [float(number) for each in scores for number in each.split(",")]
    assert len(marks) == len(numbers) == count - len(written)
    return list(zip([mark[1] for mark in marks], numbers, steps, strict=True))


@pytest.mark.parametrize("attention", NUM_ALONE)
def test_what_another_wrote_alone(real: Real, attention: str) -> None:
    """Alone here too, a greedy text goes on with the same bits, wherever it was cut: fused
    attention of one row is divided among two threads from position 256 on."""
    if real.name == "gemma3":
        pytest.skip("a window goes on from wherever a state was kept: see docs/limits.md")
    prompt, length = prompt_of(real, 40), NUM_ALONE[attention]
    options = ("-c", "4096", "-np", "2", "-t", "2", "-fa", attention, "--draft", "none")
    with real.serving(*options, "--relayed") as server:
        whole = marked(server, prompt, [], length)
        assert len({token for token, _, _ in whole}) > 10
        for count in (length // 4, length // 2, length - 20):
            assert marked(server, prompt, whole[:count], length) == whole[count:]


def test_what_another_wrote(real: Real) -> None:
    """Beside other streams a text goes on with the same bits, however long it was."""
    if real.name == "gemma3":
        pytest.skip("repacked weights: which kernel computes a row depends on how many there are")
    body = {"prompt": prompt_of(real, 30), "max_tokens": 3_000, "ignore_eos": True, "stream": True}
    prompt = prompt_of(real, 40)
    with (
        real.serving("-c", "8192", "-np", "2", "-fa", "on", "--relayed") as server,
        http.stream("POST", server.url + "/v1/completions", json=body) as beside,
    ):
        next(beside.iter_lines())
        whole = marked(server, prompt, [])
        for count in (70, 140):
            found = marked(server, prompt, whole[:count])
            assert [each[:2] for each in found] == [each[:2] for each in whole[count:]]
