"""Whether an engine that guesses tokens says what it says without guesses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request, SamplingParams
from worker.engine.sequence import Delta
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0, ignore_eos=True),
    "seeded": SamplingParams(temperature=1, top_k=40, seed=7, ignore_eos=True),
    "sharp": SamplingParams(temperature=0.2, top_p=0.9, min_p=0.01, seed=3, ignore_eos=True),
    "grammar": SamplingParams(
        temperature=0.5, seed=5, constraint=Constraint(kind="gbnf", text='root ::= ("ab" | "c")+')
    ),
    "regex": SamplingParams(
        temperature=0.5, seed=5, constraint=Constraint(kind="regex", text="(ab|c)+")
    ),
    "penalties": SamplingParams(
        temperature=0.3, repeat_penalty=1.3, presence_penalty=0.5, seed=9, ignore_eos=True
    ),
    "banned": SamplingParams(
        temperature=0.7,
        repeat_penalty=1.2,
        seed=9,
        ignore_eos=True,
        banned_strings=("E", "a", "th"),
    ),
    "banned in a form": SamplingParams(
        temperature=0.5,
        seed=5,
        constraint=Constraint(kind="regex", text="(ab|c)+"),
        banned_strings=("CA", "bab"),
    ),
}


def guesses_change_nothing(
    backend: LlamaBackend, sampling: SamplingParams, drafting: Drafting
) -> None:
    """Assert that tokens, texts and logprobs are those of an engine that guesses nothing."""
    plain = _answers(Engine(backend, _clock()), sampling)
    engine = Engine(backend, _clock(), drafting=drafting)
    guessed = _answers(engine, sampling)
    for name in ("0", "1"):
        assert [d.token for d in guessed[name]] == [d.token for d in plain[name]]
        assert "".join(d.text for d in guessed[name]) == "".join(d.text for d in plain[name])
        for one, other in zip(guessed[name], plain[name], strict=True):
            assert len(one.logprobs) == len(other.logprobs) == 1
            assert one.logprobs[0].logprob == pytest.approx(other.logprobs[0].logprob, abs=1e-3)
    assert engine.snapshot.stats.drafted_tokens > 0


def _clock() -> Any:
    ticks = itertools.count()
    return lambda: next(ticks) * 1e-4


def _answers(engine: Engine, sampling: SamplingParams) -> dict[str, list[Delta]]:
    """Deltas of three requests side by side, one of which leaves in the middle."""
    for slot in range(engine.backend.shape.num_slots):
        engine.backend.drop(slot)
    for number, length in enumerate((4, 40, 9)):
        prompt = tuple(range(5, 5 + length))
        engine.add(
            Request(
                id=str(number),
                prompt=Prompt(prompt),
                params=GenerationParams(max_tokens=40, sampling=sampling, logprobs=number),
            )
        )
    deltas: dict[str, list[Delta]] = {}
    for step in range(300):
        if step == 12:
            engine.abort("2")
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
        engine.scheduler.check_integrity()
        if engine.is_idle:
            break
    assert engine.is_idle
    return deltas
