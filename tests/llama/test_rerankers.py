"""Rerankers as llama.cpp's converter and llama-quantize write them, beside numpy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.support.models.embedders import CONTEXT, Embedder
from worker.engine.embedding import EmbeddingLane, vectors_wanted
from worker.engine.engine import Engine
from worker.lifecycle.loading import load_backend
from worker.lifecycle.prepared import prepare
from worker.settings import Settings

CLS, SEP = 2, 3
KINDS = ("bert", "xlm-roberta", "modern-bert", "jina-bert-v2", "neo-bert")
# How far logits may be off: llama.cpp rounds what a quantised matrix multiplies to 8 bits.
LEVELS = {"F32": 0.02, "F16": 0.02, "BF16": 0.2, "Q8_0": 0.4, "Q5_0": 0.4, "Q4_1": 0.4}
RANDOM = np.random.default_rng(11)


def pair(first: int, second: int) -> list[int]:
    """[CLS] tokens [SEP] tokens [SEP], of tokens that spell something."""
    tokens = RANDOM.integers(5, 300, first + second).tolist()
    return [CLS, *tokens[:first], SEP, *tokens[first:], SEP]


PAIRS = [pair(first, second) for first, second in ((3, 5), (1, 1), (10, 40), (2, 80), (7, 0))]


def scores(path: Path, pairs: Sequence[list[int]], **settings: object) -> np.ndarray:
    """float32 [pairs, outputs]"""
    chosen = Settings(model=str(path), threads=1, **settings)  # pyright: ignore[reportArgumentType]
    with load_backend(path, chosen, prepare(path, chosen)) as backend:
        assert backend.embedder is not None
        assert backend.embedder.pooling == "rank"
        lane = EmbeddingLane(backend.embedder, time.monotonic)
        engine = Engine(backend, time.monotonic, lane=lane)
        return np.stack(engine.vectors(vectors_wanted(pairs, "text")))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_converters_files(kind: str, level: str, tmp_path: Path) -> None:
    """A classifier in any encoding, in a file that does not say how to pool, scores as numpy."""
    outputs = 1 if kind in ("jina-bert-v2", "bert") else 2
    model = Embedder(kind, pooling=None, classifier=outputs, encoding=level)
    found = scores(model.write(tmp_path / "reranker.gguf"), PAIRS)
    expected = np.stack([model.logits(each) for each in PAIRS])
    np.testing.assert_allclose(found, expected, atol=LEVELS[level])


def test_one_type_is_bit_equal(tmp_path: Path) -> None:
    """Where all tokens have the first type, rows as vectors score bit for bit as tokens do."""
    model = Embedder("bert", pooling=None, classifier=1, encoding="Q8_0")
    typed = model.write(tmp_path / "typed.gguf")
    model.tensors["token_types.weight"] = model.tensors["token_types.weight"][:1]
    untyped = model.write(tmp_path / "untyped.gguf")
    singles = [each[: each.index(SEP) + 1] for each in PAIRS]
    np.testing.assert_array_equal(scores(typed, singles), scores(untyped, singles))
    assert np.abs(scores(typed, PAIRS) - scores(untyped, PAIRS)).max() > 0.5


@pytest.mark.parametrize("flash", ["auto", "on", "off"])
def test_whoever_shares_the_step(flash: str, tmp_path: Path) -> None:
    """A pair alone, and among others in any order, has one score, as near as docs say."""
    path = Embedder("bert", pooling=None, classifier=1, encoding="F16").write(tmp_path / "a.gguf")
    together = scores(path, PAIRS, flash_attn=flash)
    turned = scores(path, PAIRS[::-1], flash_attn=flash)[::-1]
    alone = np.stack([scores(path, [each], flash_attn=flash)[0] for each in PAIRS[:2]])
    np.testing.assert_allclose(turned, together, atol=1e-2)
    np.testing.assert_allclose(alone, together[:2], atol=1e-2)


def test_the_longest_pair(tmp_path: Path) -> None:
    """A pair of as many tokens as there are positions."""
    model = Embedder("bert", pooling=None, classifier=1)
    longest = pair(CONTEXT // 2, CONTEXT - 3 - CONTEXT // 2)
    found = scores(model.write(tmp_path / "a.gguf"), [longest])
    assert found[0] == pytest.approx(model.logits(longest), abs=0.02)
