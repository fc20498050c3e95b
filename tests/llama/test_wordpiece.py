"""WordPiece as BERT's authors defined it, over a vocabulary that a model's file holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.models import ggufs
from tests.support.models.ggufs import BOOL, I32, STR, Gguf, Key, array
from worker.llama.vocab import Vocab
from worker.llama.weights import LoadOptions, Weights

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
UNK, CLS, SEP, MASK = 1, 2, 3, 4
SMALL = ["rain", "##ing", "ra", "##i", "##n", "a", "##a", "!", "[", "]", "mask", "cafe", "σ", "##σ",
         "क", "##ि", "##त", "ᄒ", "##ᅡ", "##ᆫ", "中", "文", "##k"]  # fmt: skip
CASED = [*SMALL, "Rain", "café", "Σ"]


def written(words: Sequence[str], path: Path, **keys: Key) -> Path:
    """A file with these words, as the converter writes them."""
    texts = [word[2:] if word.startswith("##") else "\u2581" + word for word in words]
    model = Gguf(
        keys={
            "general.architecture": ggufs.text("bert"),
            "tokenizer.ggml.model": ggufs.text("bert"),
            "tokenizer.ggml.tokens": array(STR, [*SPECIAL, *texts]),
            "tokenizer.ggml.token_type": array(I32, [3] * len(SPECIAL) + [1] * len(texts)),
            "tokenizer.ggml.unknown_token_id": ggufs.u32(UNK),
            "tokenizer.ggml.bos_token_id": ggufs.u32(CLS),
            "tokenizer.ggml.seperator_token_id": ggufs.u32(SEP),
            **{f"tokenizer.ggml.normalizer.{name}": value for name, value in keys.items()},
        }
    )
    return model.write(path)


def read(path: Path, words: Sequence[str], text: str, *, special: bool = False) -> list[str]:
    """The pieces of a text, special tokens by their names."""
    with Weights(path, LoadOptions(vocab_only=True)) as weights:
        vocab = Vocab(weights.handle, 512)
        tokens = vocab.tokenize(text, add_special=True, parse_special=special)
    assert (tokens[0], tokens[-1]) == (CLS, SEP)
    return [[*SPECIAL, *words][token] for token in tokens[1:-1]]


UNCASED: list[tuple[str, list[str]]] = [
    ("", []),
    ("raining", ["rain", "##ing"]),
    ("RAINING Rain", ["rain", "##ing", "rain"]),
    ("rain!ing", ["rain", "!", "[UNK]"]),
    ("rainz", ["[UNK]"]),
    ("ra\u00adin\u200b \x00ra\ufffd\x07", ["rain", "ra"]),
    ("rain\u3000rain\u2028ra\tra\nra", ["rain", "rain", "ra", "ra", "ra"]),
    ("rain\x0bing", ["rain", "##ing"]),
    ("Café CAFÉ cafe\u0301", ["cafe", "cafe", "cafe"]),
    ("Σσ ΣΣ", ["σ", "##σ", "σ", "##σ"]),
    ("कित", ["क", "##ि", "##त"]),
    ("한", ["ᄒ", "##ᅡ", "##ᆫ"]),
    ("中文rain中", ["中", "文", "rain", "中"]),
    ("a" * 100, ["a", *["##a"] * 99]),
    ("a" * 101 + " rain", ["[UNK]", "rain"]),
    ("\u212a a\u212a", ["[UNK]", "a", "##k"]),
]


def test_uncased(tmp_path: Path) -> None:
    """Small letters without accents; vowel signs stay, Hangul is taken apart, long words are
    unknown."""
    path = written(SMALL, tmp_path / "a.gguf")
    for text, expected in UNCASED:
        assert read(path, SMALL, text) == expected, text


@pytest.mark.parametrize("said", [True, False])
def test_cased(said: bool, tmp_path: Path) -> None:
    """Capital letters and accents stay where the file says so, or where its words have some."""
    keys = {"lowercase": Key(BOOL, 0)} if said else {}
    path = written(CASED, tmp_path / "a.gguf", **keys)
    assert read(path, CASED, "Rain rain Raining") == ["Rain", "rain", "Rain", "##ing"]
    assert read(path, CASED, "café Café Σ") == ["café", "[UNK]", "Σ"]


def test_accents_alone(tmp_path: Path) -> None:
    """A file may keep one and drop the other."""
    path = written(CASED, tmp_path / "a.gguf", lowercase=Key(BOOL, 0), strip_accents=Key(BOOL, 1))
    assert read(path, CASED, "café Rain") == ["cafe", "Rain"]
    path = written(CASED, tmp_path / "b.gguf", lowercase=Key(BOOL, 1), strip_accents=Key(BOOL, 0))
    assert read(path, CASED, "Café Rain") == ["café", "rain"]


def test_special_tokens(tmp_path: Path) -> None:
    """They are read as such where that is asked for, and are plain text elsewhere."""
    path = written(SMALL, tmp_path / "a.gguf")
    text = "rain[MASK]ing [MASK]"
    assert read(path, SMALL, text, special=True) == ["rain", "[MASK]", "[UNK]", "[MASK]"]
    plain = ["[", "mask", "]"]
    assert read(path, SMALL, text) == ["rain", *plain, "[UNK]", *plain]


def test_long_texts(tmp_path: Path) -> None:
    """A text that is read in parts has the tokens of its words."""
    path = written(SMALL, tmp_path / "a.gguf")
    for word, pieces in (("raining", ["rain", "##ing"]), ("कित", ["क", "##ि", "##त"])):
        assert read(path, SMALL, f"{word} " * 4000) == pieces * 4000
    assert read(path, SMALL, "中" * 20_000) == ["中"] * 20_000
