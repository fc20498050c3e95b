"""A trained EAGLE-3 drafter: how often it is right, and where llama-server's is. With it, and with
generated drafters of other kinds, nothing else changes."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from checks.drafts.steps import (
    DRAFTER,
    LLAMA_SERVER,
    Step,
    Stepper,
    Tokens,
    llama_server,
    loaded,
    prompts,
    their_steps,
)
from tests.support.answers import COMPLETIONS, EXACT, answer, bodies, check_same
from tests.support.metrics import scrape
from tests.support.models import drafters
from tests.support.programs.processes import ended, guessing
from worker.demo import MODEL_PATH

LONGEST = 3  # llama-server's default
REQUESTS, TOGETHER = 500, 5


@pytest.fixture(scope="module")
def texts() -> dict[int, dict[Tokens, list[Step]]]:
    """Longest guess -> prompt -> the steps of the worker's engine."""
    found: dict[int, dict[Tokens, list[Step]]] = {}
    with loaded() as (backend, drafter):
        asked = prompts(backend)
        for longest in (LONGEST, 7):
            stepper = Stepper(backend, drafter, longest)
            found[longest] = {prompt: stepper.steps(prompt) for prompt in asked}
    return found


def num_accepted(steps: list[Step]) -> int:
    return sum(len(step.tokens) - 1 for step in steps)


def num_drafted(steps: list[Step]) -> int:
    return sum(step.drafted for step in steps)


def tokens_a_step(texts: Any) -> float:
    """Without the prompts' own steps, in which nothing is guessed."""
    steps = [step for steps in texts for step in steps[1:]]
    return sum(len(step.tokens) for step in steps) / len(steps)


def test_it_has_learned(texts: dict[int, dict[Tokens, list[Step]]]) -> None:
    """Of all that it guesses behind held-out prompts, three tokens at a time, half is right."""
    steps = [step for steps in texts[LONGEST].values() for step in steps]
    share = num_accepted(steps) / num_drafted(steps)
    rate = tokens_a_step(texts[LONGEST].values())
    print(f"{share:.3f} of guessed tokens accepted, {rate:.3f} tokens a step")
    assert share >= 0.5


@pytest.mark.skipif(LLAMA_SERVER is None, reason="LLAMA_SERVER names no llama-server")
@pytest.mark.parametrize("longest", [LONGEST, 7])
def test_as_llama_server(longest: int, texts: dict[int, dict[Tokens, list[Step]]]) -> None:
    """With the same files a step begins at the same 200 positions of each text, and gives as many
    tokens within 2 %."""
    ours = texts[longest]
    with llama_server(longest) as url:
        theirs = {prompt: their_steps(url, prompt) for prompt in ours}
    for prompt, steps in ours.items():
        other = theirs[prompt]
        print(
            f"steps {len(steps)} / {len(other)}, drafted {num_drafted(steps)} / "
            f"{num_drafted(other)}, accepted {num_accepted(steps)} / {num_accepted(other)}, "
            f"begin elsewhere: {sorted(begins(steps) ^ begins(other))}"
        )
        assert [t for s in steps for t in s.tokens] == [t for s in other for t in s.tokens]
    apart = sum(len(begins(ours[p]) ^ begins(theirs[p])) for p in ours)
    assert apart <= 0.05 * sum(len(each) for each in ours.values())
    ratio = tokens_a_step(ours.values()) / tokens_a_step(theirs.values())
    print(f"tokens a step: {ratio:.4f} of llama-server's")
    assert ratio == pytest.approx(1, abs=0.02)


def begins(steps: list[Step]) -> set[int]:
    """Places of the text at which a step begins."""
    return set(accumulate((len(step.tokens) for step in steps), initial=0))


def _trained(folder: Path) -> tuple[Path, Path]:
    model = folder / "demo.gguf"
    assert ended("quantize", MODEL_PATH, model, "F32").returncode == 0
    return model, DRAFTER


def _assistant(folder: Path) -> tuple[Path, Path]:
    model = drafters.write_gemma4(folder / "model.gguf")
    return model, drafters.write_assistant(folder / "assistant.gguf")


def _dflash(folder: Path) -> tuple[Path, Path]:
    model = drafters.write_target(folder / "model.gguf", marked=True, noise=0.9)
    return model, drafters.write_dflash(folder / "dflash.gguf")


# ggml looks up GELU, which Gemma has, by 16 bits: without a drafter too, answers to requests that
# come together differ by 4e-3 from those to one after another.
@pytest.mark.parametrize(
    ("write", "within"), [(_trained, 1e-3), (_assistant, 1e-2), (_dflash, 1e-3)]
)
def test_the_same_without_it(
    write: Callable[[Path], tuple[Path, Path]], within: float, tmp_path: Path
) -> None:
    """500 requests of all kinds, several at once, beside streams that are left, get what they get
    from a worker without a drafter. In 32 bits, weights too."""
    model, drafter = write(tmp_path)
    options = ("--model", model, "-c", "8192", "-np", "8", *EXACT)
    workers = (("--draft", "none"), ("--draft", "model", "-md", drafter))
    apart = 0.0
    with ExitStack() as stack, ThreadPoolExecutor(2 * TOGETHER) as pool:
        servers = [stack.enter_context(guessing(*options, *more)) for more in workers]
        for first in range(0, REQUESTS, TOGETHER):
            asked: list[tuple[str, dict[str, Any]]] = []
            for number in range(first, first + TOGETHER):
                kinds = bodies(number)
                asked.append(kinds[number % len(kinds)])
            # It leaves after some events, while the others run.
            left, events = bodies(first)[5][1], 1 + random.Random(first).randrange(9)
            cut = [pool.submit(answer, each, COMPLETIONS, left, events) for each in servers]
            sent = [[pool.submit(answer, each, *one) for one in asked] for each in servers]
            plain, guessed = [[each.result() for each in all_] for all_ in sent]
            texts = sorted((each.result()["choices"][0]["text"] for each in cut), key=len)
            assert texts[1].startswith(texts[0])
            for request, one, two in zip(asked, plain, guessed, strict=True):
                assert "error" not in one
                apart = max(apart, check_same(one, two, f"{first} {request}", within=within))
        counters = scrape(servers[1].url)
    drafted = counters["worker_draft_tokens_total"]
    accepted = counters["worker_draft_tokens_accepted_total"]
    print(
        f"{REQUESTS} answers are the same, numbers within {apart:.1e}; "
        f"{accepted:.0f} of {drafted:.0f} guessed tokens accepted"
    )
    assert accepted > 3 * REQUESTS
