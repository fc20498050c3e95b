"""The steps in which a greedy text is generated: which tokens each gives, and how many it verified.

Of the worker's engine, whose clock counts steps: a guess costs nothing, so all that is allowed is
guessed. And of llama-server, whose stream says behind each token what was guessed so far.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

from benchmarks.adapters import wait
from benchmarks.peers.processes import free_port, started
from checks.real.weights import cache_folder
from tests.support import http
from worker.demo import HELDOUT_PATH, MODEL_PATH
from worker.engine.draft import GuessLimits
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request, SamplingParams
from worker.lifecycle.loading import load_backend, open_draft
from worker.lifecycle.prepared import prepare
from worker.llama.backend import LlamaBackend
from worker.llama.companion import StateReader
from worker.settings import Settings

DRAFTER = cache_folder("drafter") / "demo-eagle3.gguf"  # `make check SUITE=drafts` trains it
LLAMA_SERVER = os.environ.get("LLAMA_SERVER") or None
HOST = "127.0.0.1"
PROMPTS, PROMPT_TOKENS, POSITIONS = 8, 24, 200
Tokens = tuple[int, ...]


class Step(NamedTuple):
    """What one step gave. drafted: guessed tokens that it verified"""

    tokens: Tokens
    drafted: int


@contextlib.contextmanager
def loaded() -> Generator[tuple[LlamaBackend, StateReader]]:
    """The demo model and its drafter, as the worker loads them."""
    settings = Settings(
        draft_model=str(DRAFTER), ctx_size=1024, parallel=1, threads=1, device=("none",)
    )
    prepared = prepare(MODEL_PATH, settings)
    with load_backend(MODEL_PATH, settings, prepared) as backend:
        drafter = open_draft(settings, prepared, backend)
        assert isinstance(drafter, StateReader)
        with drafter:
            yield backend, drafter


def prompts(backend: LlamaBackend) -> list[Tokens]:
    """Beginnings of held-out documents."""
    texts = [text for text in HELDOUT_PATH.read_text().split("\n\n") if len(text) > 400]
    return [
        tuple(backend.vocab.tokenize(text, add_special=True, parse_special=False))[:PROMPT_TOKENS]
        for text in texts[:PROMPTS]
    ]


class Stepper:
    """An engine that guesses `longest` tokens whenever it can."""

    def __init__(self, backend: LlamaBackend, drafter: StateReader, longest: int) -> None:
        self._steps = 0
        decode = backend.decode

        def counted() -> None:
            self._steps += 1
            decode()

        backend.decode = counted
        drafting = Drafting(heads=drafter, limits=GuessLimits(longest=longest))
        self._engine = Engine(backend, lambda: float(self._steps), drafting=drafting)
        for rows in range(1, longest + 2):
            self._engine.scheduler.cost.observe(rows, 0, 1.0)

    def steps(self, prompt: Tokens, count: int = POSITIONS, *, on: bool = True) -> list[Step]:
        """Those of one text; the first of them is the prompt's. on: beyond its end too"""
        engine, found = self._engine, list[Step]()
        sampling = SamplingParams(temperature=0, ignore_eos=on)
        params = GenerationParams(max_tokens=count, sampling=sampling)
        engine.add(Request(id="a", prompt=Prompt(prompt), params=params))
        while not engine.is_idle:
            before = engine.snapshot.stats.drafted_tokens
            tokens = tuple(d.token for d in engine.step() if d.token is not None)
            if tokens:
                found.append(Step(tokens, engine.snapshot.stats.drafted_tokens - before))
        return found


@contextlib.contextmanager
def llama_server(longest: int) -> Generator[str]:
    """The peer with the same files and limits: its address."""
    assert LLAMA_SERVER is not None
    port = free_port()
    command = [
        LLAMA_SERVER, "--no-webui", "--host", HOST, "--port", str(port),
        "--model", str(MODEL_PATH), "-md", str(DRAFTER), "--spec-type", "draft-eagle3",
        "--spec-draft-n-max", str(longest), "-c", "1024", "-np", "1", "-t", "1",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, started(command, Path(folder) / "log"):
        wait(f"http://{HOST}:{port}")
        yield f"http://{HOST}:{port}"


def their_steps(url: str, prompt: Tokens, count: int = POSITIONS) -> list[Step]:
    """Those of one text by llama-server."""
    body = {
        "prompt": prompt, "n_predict": count, "temperature": 0, "ignore_eos": True, "stream": True,
        "return_tokens": True, "timings_per_token": True, "cache_prompt": False,
    }  # fmt: skip
    found: list[Step] = []
    left, drafted, accepted = 0, 0, 0
    with http.stream("POST", f"{url}/completion", json=body) as reply:
        for line in reply.iter_lines():
            if not line.startswith("data: {"):
                continue
            event = json.loads(line[6:])
            if event["stop"] or not event["tokens"]:
                continue
            if not left:  # a step begins
                before, had = drafted, accepted
                drafted = event["timings"].get("draft_n", 0)
                accepted = event["timings"].get("draft_n_accepted", 0)
                left = accepted - had + 1
                found.append(Step((), drafted - before))
            found[-1] = Step((*found[-1].tokens, *event["tokens"]), found[-1].drafted)
            left -= 1
    return found
