"""What an engine makes of a level: what a draft model or heads gain, and vectors of a text's
lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from worker.bench.figures import figure
from worker.bench.measure.bare_loop import GREEDY
from worker.bench.measure.machine import process_memory
from worker.bench.sections import DraftSpeed, VectorSpeed
from worker.bench.sizes import Sizes
from worker.engine.drafts.guesser import Drafting
from worker.engine.embedding import EmbeddingLane, normalise, shorten, vectors_wanted
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request
from worker.errors import UsageError, quantity
from worker.llama.backend import LlamaBackend
from worker.llama.companion import DraftModel, Heads

# Continuations are longer than in the tests of speed: guesses are tried before they pay.
_LONGER = 4
FEWEST_TEXTS, MOST_TEXTS = 3, 500
_AT_ONCE = 64


def measure_drafts(
    backend: LlamaBackend, draft: DraftModel | Heads, text: str, sizes: Sizes,
    counts: Sequence[int], tick: Callable[[], None],
) -> tuple[DraftSpeed, ...]:  # fmt: skip
    """For each of `counts` streams. The prompts are parts of `text`, each used once by both."""
    drafting = Drafting(heads=draft) if isinstance(draft, Heads) else Drafting(model=draft)
    engines = {
        False: Engine(backend, time.perf_counter),
        True: Engine(backend, time.perf_counter, drafting=drafting),
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
                params=GenerationParams(max_tokens=count, sampling=GREEDY),
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


def measure_vectors(
    backend: LlamaBackend, text: str, place: Path, repetitions: int, tick: Callable[[], None]
) -> VectorSpeed:
    """Embed the lines that are not blank, MOST_TEXTS at most, and write float32 [lines, width].

    place  file for numpy; lines that are too long are cut
    tick   is called after each of the `repetitions`, and the one before that is not counted

    Raises UsageError where there are fewer than FEWEST_TEXTS, or no vectors.
    """
    embedder = backend.embedder
    if embedder is None or embedder.pooling in ("none", "rank"):
        raise UsageError("This model makes no embeddings.")
    lines = [line for line in text.splitlines() if line.strip()][:MOST_TEXTS]
    if len(lines) < FEWEST_TEXTS:
        raise UsageError(f"The text has {quantity(len(lines), 'line')}, {FEWEST_TEXTS} are needed.")
    vocab = backend.vocab
    texts = [
        shorten(vocab.tokenize(line, add_special=True, parse_special=False), embedder.max_length,
            vocab.ends_of_texts)
        for line in lines
    ]  # fmt: skip
    engine = Engine(backend, time.monotonic, lane=EmbeddingLane(embedder, time.monotonic))
    vectors = _vectors(engine, texts)
    tick()
    seconds: list[float] = []
    for _ in range(repetitions):
        begun = time.perf_counter()
        _vectors(engine, texts)
        seconds.append(time.perf_counter() - begun)
        tick()
    with place.open("wb") as file:
        np.save(file, vectors)
    tokens = sum(map(len, texts))
    return VectorSpeed(
        texts=len(texts),
        tokens=tokens,
        texts_per_s=figure([len(texts) / each for each in seconds]),
        tokens_per_s=figure([tokens / each for each in seconds]),
        memory=process_memory(),
    )


def _vectors(engine: Engine, texts: Sequence[Sequence[int]]) -> np.ndarray:
    made: list[np.ndarray] = []
    for first in range(0, len(texts), _AT_ONCE):
        request = vectors_wanted(texts[first : first + _AT_ONCE], "line")
        made += map(normalise, engine.vectors(request))
    return np.stack(made)
