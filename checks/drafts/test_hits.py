"""Guesses over the first 200 positions of an answer are those of llama-server with the same files.

LLAMA_SERVER names its binary, of the llama.cpp that is installed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from benchmarks.peers.processes import free_port, started
from tests.support import http
from tests.support.guessing import guess_alone
from tests.support.models import drafters
from tests.support.programs.processes import until
from tests.support.sessions import Tokens, Truth, load, open_assistant, open_reader, prompt_of
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Assistant
from worker.model.config import load_config
from worker.model.drafts import load_draft_config

COUNT = 200
PROMPTS = [prompt_of(900 + i, 20 + 7 * i) for i in range(4)]
PRECISE = "-ctk f32 -ctv f32 -ctkd f32 -ctvd f32 -fa off"
ALONE = "-np 1 -c 1024 -t 1 --no-warmup --no-spec-draft-backend-sampling --cache-ram 0"


# llama-server's word for a kind of drafter, and the longest guess of the files here.
KINDS = {"assistant": ("draft-mtp", 7), "eagle": ("draft-eagle3", 7), "dflash": ("draft-dflash", 5)}
Guess = Callable[[Sequence[int], int], list[int]]


class Pair:
    """A model, its drafter, and what the model answers without."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind, path = kind, folder / "target.gguf"
        if kind == "assistant":
            self.target = drafters.write_gemma4(path)
        elif kind == "dflash":
            self.target = drafters.write_target(path, marked=True, noise=0.9)
        else:
            self.target = drafters.write_target(path)
        self.drafter = getattr(drafters, f"write_{kind}")(folder / f"{kind}.gguf")
        truth = Truth(self.target)
        self.texts = [truth(prompt, COUNT) for prompt in PROMPTS]
        truth.backend.close()

    def counts(self, longest: int) -> list[tuple[int, int]]:
        """Of each answer: tokens that are guessed if each guess is as long as it can be, and those
        of them that are right."""
        config = load_draft_config(self.drafter, load_config(self.target))
        opened = open_assistant if self.kind == "assistant" else open_reader
        with (
            load(self.target, draft=config, unified=True) as backend,
            opened(config, backend) as drafter,
        ):

            def guess(known: Sequence[int], count: int) -> list[int]:
                if isinstance(drafter, Assistant):
                    return _guess(known, count, backend, drafter)
                return guess_alone(backend, drafter, known, count, longest)

            return [
                _count(prompt + text, len(prompt), longest, guess)
                for prompt, text in zip(PROMPTS, self.texts, strict=True)
            ]


def _count(tokens: Tokens, given: int, longest: int, guess: Guess) -> tuple[int, int]:
    drafted = right = 0
    known = given + 1
    while known < len(tokens):
        most = min(longest, len(tokens) - known - 1)  # a step gives one more than were right
        guessed = guess(tokens[:known], most)
        same = [one == other for one, other in zip(guessed, tokens[known:], strict=False)]
        hits = [*same, False].index(False)
        drafted, right, known = drafted + len(guessed), right + hits, known + hits + 1
    return drafted, right


def _guess(
    known: Sequence[int], count: int, backend: LlamaBackend, assistant: Assistant
) -> list[int]:
    """What the assistant guesses behind these tokens."""
    batch, own, last = backend.batch, assistant.batch, len(known) - 1
    backend.context.clear()
    batch.clear()
    batch.add(np.array(known[:-1], np.int32), 0, 0)
    batch.outputs[batch.size - 1] = 1
    backend.decode()
    (state,) = assistant.model_hidden_state(0, last)
    tokens = [known[-1]]
    for _ in range(count):
        own.clear()
        own.add_one(tokens[-1], last, 0)
        assistant.fed[0] = state
        assistant.decode()
        state = assistant.hidden_state(0).copy()
        tokens.append(int(assistant.logits(0).argmax()))
    return tokens[1:]


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Pair(tmp_path_factory.mktemp("drafts"), request.param)


@pytest.fixture(params=[1, 3, None])
def longest(pair: Pair, request: pytest.FixtureRequest) -> int:
    """Tokens of a guess; None: as many as the drafter can."""
    return request.param or KINDS[pair.kind][1]


@pytest.fixture
def llama_server(pair: Pair, longest: int, tmp_path: Path) -> Generator[str]:
    """The address of one whose guesses are so long."""
    binary = os.environ.get("LLAMA_SERVER")
    if not binary:
        pytest.skip("LLAMA_SERVER names no llama-server")
    port = free_port()
    files = ["-m", str(pair.target), "-md", str(pair.drafter), "--port", str(port)]
    words = f"--host 127.0.0.1 --spec-type {KINDS[pair.kind][0]} --spec-draft-n-max {longest}"
    url = f"http://127.0.0.1:{port}"

    def is_ready() -> bool:
        try:
            return http.get(f"{url}/health").status_code == 200
        except httpx.TransportError:
            return False

    command = [binary, *files, *words.split(), *PRECISE.split(), *ALONE.split()]
    with started(command, tmp_path / "log"):
        until(is_ready)
        yield url


def test_the_same_hits(pair: Pair, longest: int, llama_server: str) -> None:
    """It draws the same answers, and drafts and accepts as many tokens of each."""
    theirs: list[tuple[int, int]] = []
    for prompt, text in zip(PROMPTS, pair.texts, strict=True):
        body: dict[str, Any] = {
            "prompt": list(prompt),
            "n_predict": COUNT,
            "temperature": 0,
            "ignore_eos": True,
            "return_tokens": True,
            "cache_prompt": False,
        }
        answer = http.post(f"{llama_server}/completion", json=body).json()
        assert tuple(answer["tokens"]) == text
        timings = answer["timings"]
        theirs.append((timings["draft_n"], timings["draft_n_accepted"]))
    assert theirs == pair.counts(longest)
