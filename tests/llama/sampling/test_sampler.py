"""A sampler leaves the row as it was, and a shortlist changes nothing about the filters."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.cases import for_each
from tests.support.models import reference
from tests.support.models.ggufs import write_llama
from tests.support.rows import chances, fits, rows
from worker.engine.request import GenerationParams, Prompt, Request
from worker.engine.sampling import SamplingParams
from worker.errors import RequestError
from worker.grammar.constraint import Constraint
from worker.llama.guides.guides import Guides
from worker.llama.sampling.chain import Chain, add_choice
from worker.llama.sampling.choice import ChainChoice
from worker.llama.sampling.sampler import Sampler
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

SIZE = 5003
WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"top_k": 40},
    {"top_p": 0.9},
    {"min_p": 0.1},
    {"typical_p": 0.9},
    {"xtc_probability": 1.0},
    {"mirostat": 1},
    {"mirostat": 2},
    {"constraint": Constraint(kind="gbnf", text="root ::= [a-z]+")},
    {"constraint": Constraint(kind="regex", text="[a-z]+")},
]
FILTERS: list[dict[str, Any]] = [
    {"top_k": 1},
    {"top_k": 7, "temperature": 0.5},
    {"top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"top_k": 300, "typical_p": 0.8},
    {"top_k": 100, "xtc_probability": 1.0, "xtc_threshold": 0.01},
    {"top_k": SIZE - 1},
    {"top_k": SIZE, "temperature": 2.0},
    {"min_p": 0.02, "temperature": 0.8},
]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocab]:
    """Of 5,003 tokens, no multiple of anything."""
    path = tmp_path_factory.mktemp("sampler") / "wide.gguf"
    write_llama(path, vocab_size=SIZE)
    with Weights(path, LoadOptions(n_gpu_layers=0, devices=())) as weights:
        yield Vocab(weights.handle, 512)


def make(vocab: Vocab, prompt: tuple[int, ...] = (5, 6, 7), **params: Any) -> Sampler:
    sampling = SamplingParams(seed=1, **params)
    request = Request(
        id="one", prompt=Prompt(prompt), params=GenerationParams(max_tokens=1, sampling=sampling)
    )
    workspace = Workspace(vocab.size)
    return Sampler(request, vocab, workspace, Guides(vocab))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_row_stays_as_it_was(vocab: Vocab, way: dict[str, Any]) -> None:
    """Whichever way a token is chosen: others read the raw logits."""
    row = rows(SIZE)["random"]
    before = row.copy()
    edits: dict[str, Any] = {"logit_bias": ((6, 3.0),), "dry_multiplier": 0.5, "min_tokens": 2}
    sampler = make(vocab, repeat_penalty=1.2, **(way | edits))
    for _ in range(4):
        sampler.sample(row)
        assert np.array_equal(row, before)
    sampler.free()


def test_the_row_stays_as_it_was_after_a_refusal(vocab: Vocab) -> None:
    """A grammar that leaves no token raises, and the row is whole."""
    row = np.full(SIZE, -np.inf, np.float32)
    before = row.copy()
    constraint = Constraint(kind="regex", text="[ab]")
    sampler = make(vocab, constraint=constraint, logit_bias=((9, 3.0),), repeat_penalty=1.2)
    with pytest.raises(RequestError):
        sampler.sample(row)
    assert np.array_equal(row, before)
    sampler.free()


@pytest.mark.parametrize("kind", ["regex", "gbnf"])
@pytest.mark.parametrize("forbids", [{"ignore_eos": True}, {"min_tokens": 9}], ids=str)
def test_a_whole_text_ends(vocab: Vocab, kind: Any, forbids: dict[str, Any]) -> None:
    """Also where the request forbids the end, because nothing else may follow."""
    constraint = Constraint(kind=kind, text="a" if kind == "regex" else 'root ::= "a"')
    sampler = make(vocab, constraint=constraint, **forbids)
    row = rows(SIZE)["random"]
    assert vocab.pieces[sampler.sample(row)] == b"a"
    assert sampler.sample(row) in vocab.end_tokens
    sampler.free()


@for_each("name", ["random", "flat", "peaked", "holes"])
@for_each("params", FILTERS)
def test_filters_leave_what_llama_cpp_leaves(
    vocab: Vocab, name: str, params: dict[str, Any]
) -> None:
    """The same tokens and probabilities as llama.cpp's chain over the whole vocabulary."""
    row = rows(SIZE)[name]
    chain = Chain()
    add_choice(chain, SamplingParams(**params), vocab, 1)
    whole = ChainChoice(chain, Workspace(SIZE), 0)
    want = chances(whole, row)
    whole.free()
    sampler = make(vocab, **params)
    got = chances(sampler, row)
    sampler.free()
    assert got.keys() == want.keys()
    assert all(got[i] == pytest.approx(want[i], rel=1e-4, abs=1e-9) for i in want)


def test_a_shortlist_is_drawn_from_by_its_probabilities(vocab: Vocab) -> None:
    """5,000 tokens behind top-k fit softmax of the 60 best."""
    row = rows(SIZE)["flat"] * 100
    sampler = make(vocab, top_k=60)
    drawn = [sampler.sample(row) for _ in range(5000)]
    sampler.free()
    right = reference.probabilities(reference.top_k(row, 60))
    assert right[drawn].all()
    assert fits(drawn, right)


@pytest.mark.parametrize("last_n", [1, 5, -1])
def test_tokens_that_leave_the_window_are_forgiven(vocab: Vocab, last_n: int) -> None:
    """Greedy with penalties, token by token, where the window is shorter than the text.

    The window is the repeat penalty's: the others weigh what was written, and no prompt.
    """
    rng = np.random.default_rng(3)
    known = [5, 6, 7]
    sampler = make(
        vocab, tuple(known), temperature=0, repeat_last_n=last_n, repeat_penalty=1.5,
        frequency_penalty=0.5, presence_penalty=-0.2,
    )  # fmt: skip
    for _ in range(60):
        row = np.full(SIZE, -20, np.float32)
        row[:12] = rng.normal(1, 0.6, 12)
        window = len(known) if last_n < 0 else last_n
        want = reference.penalties(row, known, window, repeat=1.5)
        want = reference.penalties(want, known[3:], 60, frequency=0.5, presence=-0.2)
        known.append(int(want.argmax()))
        assert sampler.sample(row) == known[-1]
    assert len(set(known)) > 8
    sampler.free()


def test_biases_of_one_token_add_up(vocab: Vocab) -> None:
    """As llama.cpp reckons, also where one of them bans."""
    row = rows(SIZE)["flat"]
    sampler = make(vocab, temperature=0, logit_bias=((9, 3.0), (8, 5.0), (9, 3.0)))
    assert sampler.sample(row) == 9
    sampler.free()
    sampler = make(vocab, temperature=0, logit_bias=((9, 3.0), (8, 2.0), (9, -math.inf)))
    assert sampler.sample(row) == 8
    sampler.free()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ignore_eos": True},
        {"min_tokens": 2},
        {"logit_bias": ((11, -math.inf), (12, -math.inf))},
        {"logit_bias": ((11, -3.0), (12, 4.0))},
        {"repeat_penalty": 1.5, "repeat_last_n": 8},
    ],
)
def test_greedy_takes_what_is_left(vocab: Vocab, params: dict[str, Any]) -> None:
    """The largest logit after bans, biases and penalties, also where the largest of all is banned,
    raised over, or not touched; the row is as before."""
    favourites = sorted({5, 6, 7, 11, 12, 13, *vocab.end_tokens})
    draw = np.random.default_rng(3)
    for favourite in favourites:
        sampler, other = (make(vocab, temperature=0, **params) for _ in range(2))
        for _ in range(4):  # the end tokens' ban ends after two
            row = draw.normal(0, 1, SIZE).astype(np.float32)
            row[favourite], row[20] = 9, 8
            before = row.copy()
            (expected,) = chances(other, row)
            assert sampler.sample(row) == expected
            assert other.sample(row) == expected
            assert np.array_equal(row, before)
        sampler.free()
        other.free()


def test_filters_in_another_order(vocab: Vocab) -> None:
    """Each judges what the one before has left; those that are not named are off."""
    row = rows(SIZE)["random"]
    hot: dict[str, Any] = {"temperature": 4.0, "top_p": 0.5}
    usual = chances(make(vocab, **hot), row)
    turned = chances(make(vocab, **hot, samplers=("temperature", "top_p")), row)
    assert usual.keys() < turned.keys()
    top = np.sort(row)[::-1]
    weights = np.exp((top - top[0]) / 4.0)
    assert len(turned) == int(np.searchsorted(np.cumsum(weights) / weights.sum(), 0.5)) + 1
    alone = SamplingParams(**hot, top_k=5, samplers=("top_k", "dry"))
    found = alone.with_samplers()
    assert (found.temperature, found.top_p, found.top_k, found.in_order) == (1.0, 1.0, 5, True)


def test_deviations(vocab: Vocab) -> None:
    """What is further below the largest logit is never drawn."""
    row = rows(SIZE)["random"]
    found = chances(make(vocab, top_n_sigma=1.0, temperature=4.0), row)
    near = row >= row.max() - row.std()
    assert found.keys() <= set(np.flatnonzero(near).tolist())
    assert len(found) > 1


def test_a_temperature_that_adapts(vocab: Vocab) -> None:
    """Where the model is sure it is colder than where it is not."""
    row = np.full(SIZE, -30.0, np.float32)
    wide: dict[str, Any] = {"temperature": 1.0, "dynatemp_range": 1.0, "top_k": 2}
    row[[5, 6]] = 4, 0
    sure = chances(make(vocab, **wide), row)
    row[[5, 6]] = 0.2, 0
    unsure = chances(make(vocab, **wide), row)
    assert sure[5] > 1 / (1 + np.exp(-4.0))
    assert unsure[5] < 1 / (1 + np.exp(-0.2))


def test_infill_ends(vocab: Vocab) -> None:
    """An end that has a share in it is chosen; else what stands out."""
    row = np.full(SIZE, -9.0, np.float32)
    end = min(vocab.end_tokens)
    row[[5, 6]] = 9, 2
    infill: dict[str, Any] = {"samplers": ("top_k", "infill"), "top_k": 2}
    assert chances(make(vocab, **infill), row).keys() == {5}
    row[end] = 8
    assert chances(make(vocab, **infill), row).keys() <= vocab.end_tokens


def test_adaptive_p(vocab: Vocab) -> None:
    """A token of the wished probability is chosen more often than its own says."""
    row = np.full(SIZE, -20.0, np.float32)
    row[[5, 6]] = np.log([0.8, 0.2])
    found = chances(make(vocab, adaptive_target=0.2, adaptive_decay=0.0, top_k=2), row)
    assert found[6] > found[5]
