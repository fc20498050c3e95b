"""The model that recites: it says its texts, piece by piece, however it is sampled."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.models import reciting
from tests.support.models.reciting import Recital
from tests.support.sessions import load
from worker.engine.drafts.guesser import Drafting
from worker.engine.engine import Engine
from worker.engine.request import GenerationParams, Prompt, Request, SamplingParams
from worker.llama.backend import LlamaBackend

OPENING = "<|begin|>assistant\n"
PLAIN = ["Good", " morn", "ing, said", " the", " cat, said", " the", " dog."]
CALLS = [
    "<call>",
    '{"name": ',
    '"sky"',
    "}</c",
    "all>",
    "\n",
    "<call>",
    '{"name": ',
    '"sea"',
    "}",
    ".",
]
SPELLED = list("é 😀, a<b ▁ ab")
RECITALS = [
    Recital(PLAIN),
    Recital(CALLS, cue="case-1"),
    Recital(SPELLED, cue="case-10"),
    Recital([*PLAIN[:2], "!"], cue="case-2"),
    Recital(["done"], cue="case-2", after=["</think>\n"]),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reciting.write(
        tmp_path_factory.mktemp("models") / "reciting.gguf",
        RECITALS,
        openings=[OPENING, "<|begin|>assistant\n<think>\n"],
        controls=["<|begin|>", "<call>"],
        shown=["<think>", "</think>"],
    )


@pytest.fixture(scope="module")
def backend(model: Path) -> Generator[LlamaBackend]:
    with load(model, num_cells=4096) as backend:
        yield backend


def said(backend: LlamaBackend, prompt: str, drafting: bool = False, **sampling: Any) -> list[str]:
    """The texts of the tokens of an answer, which must end by itself."""
    vocab = backend.vocab
    tokens = tuple(vocab.tokenize(prompt, add_special=True, parse_special=True))
    params = msgspec.convert({"temperature": 0, **sampling}, SamplingParams)
    ticks = itertools.count()
    engine = Engine(backend, lambda: next(ticks) * 1e-4, drafting=Drafting(drafting))
    engine.add(
        Request(
            id="x", prompt=Prompt(tokens), params=GenerationParams(max_tokens=200, sampling=params)
        )
    )
    found: list[int] = []
    deltas = [delta for _ in iter(lambda: engine.is_idle, True) for delta in engine.step()]
    found = [delta.token for delta in deltas if delta.token is not None]
    assert deltas[-1].finish_reason == "stop"
    return [vocab.name(token) for token in found if token not in vocab.end_tokens]


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 1.0, "seed": 1}, {"temperature": 1.5, "seed": 2}]
)
@pytest.mark.parametrize(("cue", "pieces"), [("", PLAIN), ("case-1", CALLS), ("case-10", SPELLED)])
def test_it_says_its_pieces(
    backend: LlamaBackend, cue: str, pieces: Sequence[str], sampling: dict[str, Any]
) -> None:
    """One token each where they are long enough, and the same text in any case."""
    texts = said(backend, f"Now {cue}, please{OPENING}", **sampling)
    if pieces is SPELLED:
        assert "".join(texts).count("\\x") == len("é😀▁".encode())
    else:
        assert texts == [
            part for piece in pieces for part in ([piece] if len(piece) > 2 else piece)
        ]


def test_guesses_change_nothing(backend: LlamaBackend) -> None:
    """A text that stands in the prompt, by guesses and without."""
    prompt = f"{''.join(CALLS)} case-1 {''.join(CALLS)}{OPENING}"
    assert said(backend, prompt, drafting=True) == said(backend, prompt)


def test_under_a_grammar(backend: LlamaBackend) -> None:
    """What is allowed is said."""
    grammar = 'root ::= "Good" [a-z, ]+ "."'
    assert "".join(said(backend, OPENING, grammar=grammar)) == "".join(PLAIN)


def test_the_last_cue_of_the_list_counts(backend: LlamaBackend) -> None:
    """Wherever it stands, however much stands around it; the end of the prompt counts too."""
    noise = "x <call> " * 60
    for prompt in ("case-2 case-1 case-10", "case-1 case-10 case-2", f"{noise}case-2{noise}"):
        assert said(backend, prompt + OPENING) == [*PLAIN[:2], "!"]
        assert said(backend, prompt + OPENING + "<think>\n") == [*PLAIN[:2], "!"]
        assert said(backend, prompt + "</think>\n") == ["done"]


def test_without_an_opening_it_ends(backend: LlamaBackend) -> None:
    """A prompt that it does not know has no answer."""
    assert said(backend, "case-1, assistant: ", temperature=1.0) == []


def test_what_cannot_be_told_apart_is_refused(tmp_path: Path) -> None:
    """Eight tokens that occur twice lead to two places."""
    text = list("<abcdefgh-<abcdefgh+")
    with pytest.raises(ValueError, match="cut otherwise"):
        reciting.write(tmp_path / "x.gguf", [Recital(text)], openings=["x"])
