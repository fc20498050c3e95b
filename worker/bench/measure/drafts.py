"""What a draft model or heads gain: the same text continued with them and without, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from worker.bench.figures import figure
from worker.bench.sections import DraftSpeed
from worker.bench.sizes import Sizes
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.llama.backend import LlamaBackend
from worker.llama.companion import DraftModel, Heads

_GREEDY = SamplingParams(temperature=0, ignore_eos=True)
# Continuations are longer than in the tests of speed: guesses are tried before they pay.
_LONGER = 4


def measure_drafts(
    backend: LlamaBackend, draft: DraftModel | Heads, text: str, sizes: Sizes,
    counts: Sequence[int], tick: Callable[[], None],
) -> tuple[DraftSpeed, ...]:  # fmt: skip
    """For each of `counts` streams. The prompts are parts of `text`, each used once by both."""
    engines = {
        False: Engine(backend, time.perf_counter),
        True: Engine(backend, time.perf_counter, heads=draft)
        if isinstance(draft, Heads)
        else Engine(backend, time.perf_counter, draft_model=draft),
    }
    tokens = backend.vocab.tokenize(text, add_special=False, parse_special=False)
    room = backend.max_length // max(counts) - _LONGER * sizes.decode - 8
    length = max(1, min(sizes.prompt, room, len(tokens) // 2))
    found: list[DraftSpeed] = []
    place = 0
    for streams in counts:
        rates: dict[bool, list[float]] = {False: [], True: []}
        guessed = right = 0
        for round_ in range(sizes.repetitions + 1):
            prompts: list[tuple[int, ...]] = []
            for _ in range(streams):
                prompts.append(tuple(tokens[place : place + length]))
                place = (place + length) % (len(tokens) - length + 1)
            for is_drafted, engine in engines.items():
                before = engine.snapshot.stats.copy()
                rate = _rate(engine, prompts, _LONGER * sizes.decode)
                after = engine.snapshot.stats
                if round_:
                    rates[is_drafted].append(rate)
                    guessed += after.drafted_tokens - before.drafted_tokens
                    right += after.accepted_tokens - before.accepted_tokens
        found.append(
            DraftSpeed(
                streams=streams,
                tokens=_LONGER * sizes.decode,
                alone=figure(rates[False]),
                drafted=figure(rates[True]),
                guessed=guessed,
                right=right,
            )
        )
        tick()
    return tuple(found)


def _rate(engine: Engine, prompts: Sequence[tuple[int, ...]], count: int) -> float:
    """Tokens a second of all streams, from when the last one has its first token."""
    for number, prompt in enumerate(prompts):
        engine.add(
            Request(
                id=str(number),
                prompt=Prompt(prompt),
                params=GenerationParams(max_tokens=count, sampling=_GREEDY),
            )
        )
    running = engine.scheduler.running
    while engine.scheduler.waiting or any(not sequence.num_sampled for sequence in running):
        engine.step()
    started, tokens = time.perf_counter(), 0
    while running:
        tokens += sum(delta.token is not None for delta in engine.step())
    seconds = time.perf_counter() - started
    for slot in engine.scheduler.cells.slots:  # the other engine has the same cells
        if slot.length:
            engine.scheduler.cells.clear(slot)
    return tokens / seconds if seconds else 0.0
