"""BERT's tokeniser, WordPiece, which llama.cpp's is not for each text.

llama.cpp's drops all marks, vowel signs of Indic scripts among them, does not take Hangul apart,
splits words of more than 100 characters, and takes a vocabulary with capital letters for one
without where the file does not say.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

_BEGIN = "\u2581"  # in front of tokens that begin a word
_LONGEST_WORD = 100  # a longer one is unknown
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """A vocabulary of words and pieces of words. Several threads may use it at the same time."""

    def __init__(
        self,
        words: Sequence[str],
        sought: tuple[Mapping[str, int], Mapping[str, int]],
        unknown: int,
        *,
        lowercase: bool | None,
        strips_accents: bool | None,
    ) -> None:
        """
        words           token id -> text as GGUF files spell it; empty: of no word
        sought          texts that are tokens wherever they stand -> their ids: where special
                        tokens are plain text, and where they are read as such
        lowercase       None: the file does not say; it is where no word has a capital letter
        strips_accents  None: as `lowercase`
        """
        self._begins = {word[1:]: i for i, word in enumerate(words) if word.startswith(_BEGIN)}
        self._pieces = {word: i for i, word in enumerate(words) if not word.startswith(_BEGIN)}
        self._longest = max(map(len, words), default=0)
        self._sought, self._unknown = sought, unknown
        self._cuts = tuple(map(_any_of, sought))
        is_cased = any(word.isalpha() and word != word.lower() for word in self._begins)
        lowercase = not is_cased if lowercase is None else lowercase
        self._decomposes = lowercase if strips_accents is None else strips_accents
        self._cleaned = _Cleaned()
        self._split = _Split(lowercase=lowercase, strips_marks=self._decomposes)

    def tokens(self, text: str, *, parse_special: bool) -> list[int]:
        """parse_special: read special tokens spelt out in the text as those tokens"""
        sought, found = self._sought[parse_special], list[int]()
        for part in self._cuts[parse_special].split(text):
            found += [sought[part]] if part in sought else self._read(part)
        return found

    def _read(self, text: str) -> list[int]:
        text = text.translate(self._cleaned)
        if self._decomposes:
            text = unicodedata.normalize("NFD", text)
        return [
            token for word in text.translate(self._split).split() for token in self._spell(word)
        ]

    def _spell(self, word: str) -> list[int]:
        """The longest pieces, from the left."""
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        found: list[int] = []
        begin, pieces = 0, self._begins
        while begin < len(word):
            for end in range(min(len(word), begin + self._longest), begin, -1):
                token = pieces.get(word[begin:end])
                if token is not None:
                    break
            else:
                return [self._unknown]
            found.append(token)
            begin, pieces = end, self._pieces
        return found


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """The longest one that stands at a place, as a group."""
    names = sorted(filter(None, texts), key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, names))})" if names else r"(?!)")


class _Cleaned(dict[int, str]):
    """Character -> without what does not show, white space a space, ideographs by themselves."""

    def __missing__(self, code: int) -> str:
        made = character = chr(code)
        if character.isspace() and (unicodedata.category(character) != "Cc" or code in b"\t\n\r"):
            made = " "
        elif code == 0xFFFD or unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs"):
            made = ""
        elif any(first <= code <= last for first, last in _IDEOGRAPHS):
            made = f" {character} "
        self[code] = made
        return made


class _Split(dict[int, str]):
    """Character -> without accents and in small letters, punctuation by itself."""

    def __init__(self, *, lowercase: bool, strips_marks: bool) -> None:
        super().__init__()
        self._lowercase, self._strips = lowercase, strips_marks

    def __missing__(self, code: int) -> str:
        character = chr(code)
        category = unicodedata.category(character)
        made = character.lower() if self._lowercase else character
        if self._strips and category == "Mn":
            made = ""
        elif category[0] == "P" or (code < 0x7F and category[0] == "S"):
            made = f" {character} "
        self[code] = made
        return made
