"""Whether an engine that guesses says what it says without; what a drafter guesses alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request, SamplingParams
from worker.engine.sequence import Delta
from worker.grammar.constraint import Constraint
from worker.llama.backend import LlamaBackend
from worker.llama.companion import Eagle, LayerReader

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


def guess_alone(
    backend: LlamaBackend,
    reader: LayerReader,
    known: Sequence[int],
    count: int,
    longest: int | None = None,
) -> list[int]:
    """What a drafter guesses when nobody else was there, up to a near-tie.

    longest: tokens of a block
    """
    backend.context.clear()
    reader.context.clear()
    backend.batch.clear()
    backend.batch.add(np.array(known[:-1], np.int32), 0, 0)
    backend.batch.outputs[backend.batch.size - 1] = 1
    backend.decode()
    if isinstance(reader, Eagle):
        return _eagle_alone(reader, known, count)
    return _block_alone(reader, known, count, longest or reader.longest)


def _clear_best(logits: np.ndarray) -> int | None:
    """The likeliest token; None: two are as likely."""
    second, best = np.argsort(logits)[-2:]
    return int(best) if logits[best] - logits[second] >= 0.01 else None


def _block_alone(reader: LayerReader, known: Sequence[int], count: int, longest: int) -> list[int]:
    batch, states = reader.batch, reader.model_hidden_state(len(known) - 1)
    for at in range(0, len(states), batch.capacity):
        batch.clear()
        part = states[at : at + batch.capacity]
        batch.add(np.zeros(len(part), np.int32), at, 0)
        batch.vectors = np.ascontiguousarray(part)
        reader.decode()
    assert reader.mask is not None
    batch.clear()
    for place, token in enumerate((known[-1], *[reader.mask] * longest)):
        batch.add_one(token, len(known) - 1 + place, 0)
    reader.decode()
    best = [_clear_best(reader.logits(row)) for row in range(1, 1 + count)]
    return [token for token in best[: [*best, None].index(None)] if token is not None]


def _eagle_alone(reader: LayerReader, known: Sequence[int], count: int) -> list[int]:
    states = reader.encode(reader.model_hidden_state(len(known) - 1))
    tokens, state, batch = list[int](), states[-1], reader.batch
    batch.clear()
    batch.add(np.array(known[1:-1], np.int32), 1, 0)
    reader.fed[: len(known) - 2] = states[:-1]
    reader.decode()
    for position in range(len(known) - 1, len(known) - 1 + count):
        batch.clear()
        batch.add_one([known[-1], *tokens][-1], position, 0)
        reader.fed[0] = state
        reader.decode()
        best = _clear_best(reader.logits(0))
        if best is None:
            break
        state = reader.hidden_state(0).copy()
        tokens.append(best)
    return tokens


def _clock() -> Any:
    ticks = itertools.count()
    return lambda: next(ticks) * 1e-4


def _answers(engine: Engine, sampling: SamplingParams) -> dict[str, list[Delta]]:
    """Deltas of three requests: one begins alone, and another one leaves in the middle."""
    for slot in range(engine.backend.shape.num_slots):
        engine.backend.drop(slot)
    lengths = {0: 4, 8: 40, 9: 9}  # step -> length of the prompt that comes
    deltas: dict[str, list[Delta]] = {}
    for step in range(300):
        if step in lengths:
            number = list(lengths).index(step)
            engine.add(
                Request(
                    id=str(number),
                    prompt=Prompt(tuple(range(5, 5 + lengths[step]))),
                    params=GenerationParams(max_tokens=40, sampling=sampling, logprobs=number),
                )
            )
        if step == 20:
            engine.abort("2")
        for delta in engine.step():
            deltas.setdefault(delta.id, []).append(delta)
        engine.scheduler.check_integrity()
        if engine.is_idle and step > max(lengths):
            break
    assert engine.is_idle
    return deltas
