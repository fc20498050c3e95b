"""Long texts are read in parts that do not show, and can be stopped."""

from __future__ import annotations

import random
import re
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from tests.support.models import ggufs
from worker.budget import UNBOUNDED, Budget
from worker.errors import LeftError, RequestError
from worker.limits import TOKENIZING
from worker.llama import text_parts as module
from worker.llama.text_parts import MAX_PART, MAX_UNCUT, ControlCuts, SafeCuts, pairs_of
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

# Words, unknown characters, control tokens whole and cut, and what stands beside them.
PIECES = (
    "the ", "he", "in", " ", "  ", "\n", "\n\n", "\t", "\U0001f600", "\u4e2d", "e\u0301", "\u2581",
    "<s>", "</s>", "<s", ">", "<unk>", "<0x41>", "aaaa", "1", "t", "h",
)  # fmt: skip


@pytest.fixture(scope="module", params=["llama", "t5", "rwkv", "plamo2"])
def vocab(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[Vocab]:
    """A vocabulary of each kind whose texts are cut where it does not show."""
    gguf = ggufs.vocab_gguf("spm")
    gguf.keys["tokenizer.ggml.model"] = ggufs.text(request.param)
    if request.param == "rwkv":  # it writes bytes with escapes
        tokens = gguf.keys["tokenizer.ggml.tokens"]
        assert isinstance(tokens, ggufs.Key)
        spelt = [re.sub("^<0x(..)>$", lambda m: rf"\x{m[1].lower()}", t) for t in tokens.value]
        gguf.keys["tokenizer.ggml.tokens"] = replace(tokens, value=spelt)
    path = gguf.write(tmp_path_factory.mktemp("vocab") / "vocab.gguf")
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        yield Vocab(weights.handle, 512)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_parts_do_not_show(
    vocab: Vocab, monkeypatch: pytest.MonkeyPatch, seed: int, special: bool
) -> None:
    """Read in parts of a few characters a text has the tokens that it has at once."""
    draw = random.Random(seed)
    text = "".join(draw.choices(PIECES, k=400))

    def read() -> list[int]:
        return vocab.tokenize(text, add_special=True, parse_special=special)

    monkeypatch.setattr("worker.llama.vocab.MAX_PART", 10**9)
    whole = read()
    monkeypatch.setattr("worker.llama.vocab.MAX_PART", 1)
    monkeypatch.setattr(module, "_PART", 8)
    assert read() == whole


def test_cuts_are_where_no_token_is() -> None:
    """Between neighbours of no token, and before control tokens, but not behind them."""
    cuts = SafeCuts(pairs_of(["aa", "bb", "\u2581a", "<c>"]), ControlCuts(["<c>"], strips=False))
    text = "a" * 1200 + "b" * 1200
    assert [early for _, early in cuts.parts(text)] == [0, 1]
    assert "".join(part[early:] for part, early in cuts.parts(text)) == text
    text = "<c>" * 2000
    found = list(cuts.parts(text))
    assert "".join(part for part, _ in found) == text
    assert {early for _, early in found} == {0}
    assert all(part.startswith("<c>") and len(part) < 1100 for part, _ in found)


def test_a_text_without_a_place_to_cut() -> None:
    """It is cut in the end."""
    cuts = SafeCuts(pairs_of(["aa"]), ControlCuts([], strips=False))
    text = "a" * (2 * MAX_UNCUT + 5)
    found = list(cuts.parts(text))
    assert [len(part) - early for part, early in found] == [MAX_UNCUT, MAX_UNCUT, 5]


@pytest.mark.parametrize("kind", ["spm", "bpe"])
def test_a_long_text_is_stopped(
    kind: Literal["spm", "bpe"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When its time is over, and when nobody waits."""
    path = ggufs.vocab_gguf(kind).write(tmp_path / "vocab.gguf")
    text = "\U0001f600" * (4 * MAX_PART)
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        vocab = Vocab(weights.handle, 512)

        def read(budget: Budget | None = None) -> list[int]:
            return vocab.tokenize(text, add_special=False, parse_special=True, budget=budget)

        whole = read()
        assert b"".join(vocab.pieces[token] for token in whole).decode().strip() == text
        assert read(UNBOUNDED) == whole
        with pytest.raises(LeftError):
            read(Budget(has_left=lambda: True))
        monkeypatch.setattr(module.time, "thread_time", iter(range(0, 10**6, 60)).__next__)
        assert read() == whole
        with pytest.raises(RequestError) as caught:
            read(UNBOUNDED)
        assert caught.value.code == TOKENIZING.code
