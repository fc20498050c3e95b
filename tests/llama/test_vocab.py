"""Long texts are read in parts, and the parts do not show."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support import ggufs
from worker.llama.vocab import MAX_PART, Vocab
from worker.llama.weights import LoadOptions, Weights

SENTENCE = " the one who sat there, and 12 others: it's all!\n"


@pytest.fixture(params=["default", "gpt-2", "llama-bpe", "qwen2", "tekken", "deepseek-v3"])
def vocab(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[Vocab]:
    """A BPE vocabulary, its texts split in one of llama.cpp's ways."""
    model = ggufs.vocab_gguf("bpe")
    model.keys["tokenizer.ggml.pre"] = ggufs.text(request.param)
    model.keys["tokenizer.ggml.add_bos_token"] = ggufs.Key(ggufs.BOOL, 1)
    path = model.write(tmp_path / "vocab.gguf")
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        yield Vocab(weights.handle, 512)


def read(vocab: Vocab, text: str, *, special: bool = False) -> list[int]:
    return vocab.tokenize(text, add_special=special, parse_special=True)


def test_parts_do_not_show(vocab: Vocab) -> None:
    """A long text has the tokens of its sentences, one BOS in front."""
    count = 4 * MAX_PART // len(SENTENCE)
    tokens = read(vocab, SENTENCE * count, special=True)
    assert tokens == [vocab.bos, *(read(vocab, SENTENCE) * count)]


@pytest.mark.parametrize("unit", ["a", "\u4e2d", "\U0001f600", "\n", "x!"])
def test_word_without_end(vocab: Vocab, unit: str) -> None:
    """Tokens of an endless word say it again; no character is cut."""
    text = unit * (3 * MAX_PART)
    tokens = read(vocab, text)
    assert b"".join(vocab.pieces[token] for token in tokens).decode() == text


def test_shortest_long_text(vocab: Vocab) -> None:
    """Around the length of a part nothing is lost and nothing doubled."""
    for length in range(MAX_PART - 2, MAX_PART + 3):
        text = ("one two " * MAX_PART)[:length]
        assert b"".join(vocab.pieces[token] for token in read(vocab, text)).decode() == text
