"""Vectors of a text's lines, and how fast they are made."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from worker.bench.figures import figure
from worker.bench.measure.machine import process_memory
from worker.bench.sections import VectorSpeed
from worker.engine.embedding import EmbeddingLane, normalise, shorten, vectors_wanted
from worker.engine.engine import Engine
from worker.errors import UsageError, quantity
from worker.llama.backend import LlamaBackend

FEWEST_TEXTS, MOST_TEXTS = 3, 500
_AT_ONCE = 64


def measure_vectors(
    backend: LlamaBackend, text: str, place: Path, repetitions: int, tick: Callable[[], None]
) -> VectorSpeed:
    """Embed the lines that are not blank, MOST_TEXTS at most, and write float32 [lines, width].

    place  file for numpy; lines that are too long are cut
    tick   is called after each of the `repetitions`, and the one before that is not quantity

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
        shorten(
            vocab.tokenize(line, add_special=True, parse_special=False),
            embedder.max_length,
            vocab.ends_of_texts,
        )
        for line in lines
    ]
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
