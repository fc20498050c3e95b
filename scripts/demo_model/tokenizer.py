"""A byte-level BPE tokenizer that splits text as llama.cpp's pre-tokenizer "smollm" does."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise

# Some readers of llama files assume that EOS has the id 2. Here it has another one, so that tests
# find them. llama.cpp knows the ends of a text by their names: these two are in its list.
SPECIALS = (
    "<|pad|>", "<|bos|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|endoftext|>",
)  # fmt: skip
PRE = "smollm"  # every digit is a token; the rest is split as GPT-2 does
_SPECIAL = re.compile("(" + "|".join(re.escape(s) for s in SPECIALS) + ")")


def _byte_letters() -> list[str]:
    """Return GPT-2's printable character for each of the 256 bytes."""
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in keep else chr(next(others)) for b in range(256)]


def _ranges(prefix: str) -> str:
    """Return all code points of a Unicode category, such as "L", as ranges for a `[...]`."""
    body: list[str] = []
    start = -1
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(prefix)
        if inside and start < 0:
            start = code
        elif not inside and start >= 0:
            body.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = -1
    return "".join(body)


_LETTER, _NUMBER = _ranges("L"), _ranges("N")
# Python's \s also matches the separators 0x1c-0x1f; llama.cpp's does not.
_SPACE = "\\t-\\r \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000"
_DIGITS = re.compile(f"([{_NUMBER}])")
_WORDS = re.compile(
    f"'s|'t|'re|'ve|'m|'ll|'d| ?[{_LETTER}]+| ?[{_NUMBER}]+| ?[^{_SPACE}{_LETTER}{_NUMBER}]+"
    f"|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)


def split_words(text: str) -> list[str]:
    """Cut text without special tokens into words; a token never reaches over the end of one."""
    return [w for part in _DIGITS.split(text) if part for w in _WORDS.findall(part)]


class Tokenizer:
    """Encodes text to token ids and back."""

    def __init__(self, merges: list[tuple[str, str]]) -> None:
        """Take the merges in the order of their rank."""
        self.letters = _byte_letters()
        self.merges = merges
        self.tokens = [*SPECIALS, *self.letters, *(a + b for a, b in merges)]
        self.ids = {token: i for i, token in enumerate(self.tokens)}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.bos, self.eos = self.ids["<|bos|>"], self.ids["<|endoftext|>"]
        self._bytes = {letter: b for b, letter in enumerate(self.letters)}
        self._cache: dict[str, list[int]] = {}

    def _word(self, word: str) -> list[int]:
        """Encode one word: the pair that was learnt first is merged first."""
        if word not in self._cache:
            parts = [self.letters[b] for b in word.encode("utf-8")]
            while len(parts) > 1:
                pairs = enumerate(pairwise(parts))
                rank, i = min((self.ranks.get(pair, sys.maxsize), i) for i, pair in pairs)
                if rank == sys.maxsize:
                    break
                parts[i : i + 2] = [parts[i] + parts[i + 1]]
            self._cache[word] = [self.ids[p] for p in parts]
        return self._cache[word]

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Return the ids, without BOS and EOS; ``special`` reads the markers as special tokens."""
        ids: list[int] = []
        for part in _SPECIAL.split(text) if special else [text]:
            if special and part in SPECIALS:
                ids.append(self.ids[part])
            else:
                for word in split_words(part):
                    ids += self._word(word)
        return ids

    def document(self, text: str) -> list[int]:
        """Return the ids of a whole document from BOS to EOS."""
        return [self.bos, *self.encode(text), self.eos]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids; special tokens appear as their markers."""
        raw = bytearray()
        for i in ids:
            token = self.tokens[i]
            raw += token.encode() if i < len(SPECIALS) else bytes(self._bytes[c] for c in token)
        return raw.decode("utf-8", errors="replace")


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn merges from the texts until the vocabulary has ``vocab_size`` tokens."""
    letters = _byte_letters()
    counts: Counter[str] = Counter()
    for text in texts:
        for part in _SPECIAL.split(text):
            if part not in SPECIALS:
                counts.update(split_words(part))
    splits = [[letters[b] for b in word.encode("utf-8")] for word in counts]
    weights = list(counts.values())
    pairs: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    for i, parts in enumerate(splits):
        for pair in pairwise(parts):
            pairs[pair] += weights[i]
            where[pair].add(i)
    merges: list[tuple[str, str]] = []
    while len(merges) < vocab_size - len(SPECIALS) - len(letters):
        # Among equal counts the text of the pair decides: the order of a dict must not matter.
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] <= 0:
            raise ValueError(f"the text only gives {len(merges)} merges")
        merges.append(best)
        for i in where.pop(best):
            old = splits[i]
            for pair in pairwise(old):
                pairs[pair] -= weights[i]
            new: list[str] = []
            for letter in old:
                if new and (new[-1], letter) == best:
                    new[-1] += letter
                else:
                    new.append(letter)
            splits[i] = new
            for pair in pairwise(new):
                pairs[pair] += weights[i]
                where[pair].add(i)
        pairs.pop(best, None)
    return Tokenizer(merges)
