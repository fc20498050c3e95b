"""Text to tokens and back: long texts, odd vocabularies, several threads."""

from __future__ import annotations

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.cases import for_each
from tests.support.models import ggufs
from worker.demo import MODEL_PATH
from worker.llama.library import native
from worker.llama.text_parts import MAX_PART
from worker.llama.vocab import Pieces, Vocab
from worker.llama.weights import LoadOptions, Weights
from worker.model.config import load_config

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


@for_each("unit", ["a", "\u4e2d", "\U0001f600", "\n", "x!"])
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


@pytest.fixture
def plain_vocab(tmp_path: Path) -> Generator[Vocab]:
    """A SentencePiece vocabulary in which no token stands for a space."""
    model = ggufs.vocab_gguf("spm")
    tokens = model.keys["tokenizer.ggml.tokens"]
    assert isinstance(tokens, ggufs.Key)
    spelt = [token.replace("▁", "Z") for token in tokens.value]
    model.keys["tokenizer.ggml.tokens"] = ggufs.array(ggufs.STR, spelt)
    path = model.write(tmp_path / "plain.gguf")
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        yield Vocab(weights.handle, 512)


@pytest.mark.parametrize("spaces", [1, 4, 5, 1000])
def test_text_of_more_tokens_than_bytes(plain_vocab: Vocab, spaces: int) -> None:
    """Where no token stands for a space, each is three tokens for the bytes of `▁`."""
    tokens = read(plain_vocab, "e" + " " * spaces + "e")
    assert len(tokens) == 3 * (1 + spaces) + 2  # this vocabulary puts a space in front
    pieces = b"".join(plain_vocab.pieces[token] for token in tokens)
    assert pieces.decode() == "▁e" + "▁" * spaces + "e"


def test_threads_do_not_read_each_others_tokens(
    plain_vocab: Vocab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads that ask for a token's text at the same moment get each its own."""
    both, spell = threading.Barrier(2), native.llama_token_to_piece

    def at_the_same_moment(*arguments: Any) -> int:
        count = spell(*arguments)
        both.wait(timeout=60)  # both have written what they found, none has read it yet
        return count

    monkeypatch.setattr(native, "llama_token_to_piece", at_the_same_moment)
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(plain_vocab.name, [1, 2])) == ["<s>", "</s>"]


def test_pieces_are_asked_for_once() -> None:
    """Each at its first use, from either end; there are no others."""
    asked: list[int] = []

    def spell(token: int) -> bytes:
        asked.append(token)
        return b"%d" % token

    pieces = Pieces(3, spell)
    assert len(pieces) == 3
    assert (pieces[2], pieces[-1], pieces[2]) == (b"2", b"2", b"2")
    assert asked == [2]
    assert list(pieces) == pieces[:] == [b"0", b"1", b"2"]
    assert asked == [2, 0, 1]
    for wrong in (3, -4):
        with pytest.raises(IndexError):
            _ = pieces[wrong]


def test_no_piece_is_longer_than_the_file_says() -> None:
    """The bound of a prompt's characters is made of it."""
    tokenizer = load_config(MODEL_PATH).tokenizer
    assert tokenizer is not None
    with Weights(MODEL_PATH, LoadOptions(vocab_only=True)) as weights:
        vocab = Vocab(weights.handle, 512)
        assert 0 < max(map(len, vocab.pieces)) <= tokenizer.longest
