"""A sampler that goes on where another one was chooses what that one would have chosen."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest

from tests.support.models.ggufs import write_llama
from worker.engine.request import GenerationParams, Prompt, Request, SpanLimit
from worker.engine.sampling import SamplingParams
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

LETTERS = Constraint(kind="regex", text="[a-z0-9 ]*")
CALLS = Constraint(kind="regex", text="[a-z]{9}", starts_after=("e",), repeats=True)
LIMIT = SpanLimit(count=9, opens=("<",), ends=(">",), forced=(7, 8, 9), is_open=True)
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0, "repeat_penalty": 1.5},
    {"top_p": 0.7, "temperature": 1.7},
    {"min_p": 0.1, "presence_penalty": 2},
    {"top_k": 2},
    {"top_k": 40, "top_p": 0.5, "dry_multiplier": 0.8},
    {"typical_p": 0.6},
    {"constraint": LETTERS},
    {"constraint": LETTERS, "top_k": 20},
    {"constraint": CALLS, "temperature": 0.8},
    {"constraint": Constraint(kind="regex", text="(green apples|red pears)")},
]
COUNT = 24


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocab]:
    path = write_llama(tmp_path_factory.mktemp("resume") / "tiny.gguf")
    with Weights(path, LoadOptions(n_gpu_layers=0, devices=())) as weights:
        yield Vocab(weights.handle, 512)


@pytest.mark.parametrize(
    ("way", "limit"),
    [*((way, None) for way in WAYS), *((way, LIMIT) for way in WAYS if "constraint" not in way)],
    ids=str,
)
def test_it_goes_on(vocab: Vocab, way: dict[str, Any], limit: SpanLimit | None) -> None:
    """Draws, penalties, constraints and limits stand where they stood, at any token."""
    rows = np.random.default_rng(3).normal(0, 3, (COUNT, vocab.size)).astype(np.float32)
    workspace, guides = Workspace(vocab.size), Guides(vocab)

    def sampler(written: list[int], place: tuple[float, ...]) -> Sampler:
        params = GenerationParams(sampling=SamplingParams(seed=5, **way), limit=limit)
        asked = Request(
            id="a", prompt=Prompt((5, 6)), params=params, written=tuple(written), place=place
        )
        return Sampler(asked, vocab, workspace, guides)

    def step(made: Sampler, row: np.ndarray) -> list[int]:
        return [made.sample(row), *made.ahead()]

    first = sampler([], ())
    tokens: list[list[int]] = []
    places: list[tuple[float, ...]] = []
    for row in rows:
        tokens.append(step(first, row))
        places.append(first.place)
        if vocab.end_tokens & {*tokens[-1]}:
            break
    assert len(tokens) > 1 or "apples" in str(way)
    for cut in range(1, len(tokens)):
        again = sampler([*chain.from_iterable(tokens[:cut])], places[cut - 1])
        for row, expected in zip(rows[cut:], tokens[cut:], strict=False):
            assert step(again, row) == expected
