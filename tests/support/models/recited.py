"""The vocabulary of a model that recites: a SentencePiece one whose pieces no prompt reaches.

A text is read as bytes, spaces, control tokens and cues: pieces of three characters or more can
only be put together from shorter ones, and there are none. So it is known which tokens a prompt
ends with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.support.models.ggufs import ARR, BOOL, F32, I32, STR, Key, Raw, array, text, u32

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPACE = "▁"


@dataclass
class Words:
    """Tokens, their kinds, and which are cues. Control tokens and cues are `ids` by their text."""

    tokens: list[str] = field(default_factory=list[str])
    kinds: list[int] = field(default_factory=list[int])
    ids: dict[str, int] = field(default_factory=dict[str, int])
    cues: list[int] = field(default_factory=list[int])

    def add(self, token: str, kind: int) -> int:
        """The id of a token, which may be there already."""
        if token not in self.ids:
            self.ids[token] = len(self.tokens)
            self.tokens.append(token)
            self.kinds.append(kind)
        return self.ids[token]

    def spell(self, piece: str) -> list[int]:
        """The tokens of a piece of an answer; a short one is spelled."""
        known = self.ids.get(piece.replace(" ", SPACE))
        if known is not None and (self.kinds[known] in (CONTROL, USER_DEFINED) or is_piece(piece)):
            return [known]
        return [token for char in piece for token in self._bytes(char)]

    def read(self, prompt: str) -> list[int]:
        """The tokens of a prompt's text."""
        special = [t for t, kind in zip(self.tokens, self.kinds, strict=True)
                   if kind in (CONTROL, USER_DEFINED)]  # fmt: skip
        pattern = "|".join(re.escape(token) for token in sorted(special, key=len, reverse=True))
        found: list[int] = []
        for part in re.split(f"({pattern})", prompt):
            if part in special:
                found.append(self.ids[part])
            else:
                found += [token for char in part for token in self._bytes(char)]
        return found

    def _bytes(self, char: str) -> list[int]:
        if char == " ":
            return [self.ids[SPACE]]
        return [self.ids[f"<0x{byte:02X}>"] for byte in char.encode()]

    def keys(self, bos: str, end: str) -> dict[str | bytes, Key | Raw]:
        """The tokenizer in a file."""
        return {
            "tokenizer.ggml.model": text("llama"),
            "tokenizer.ggml.pre": text("default"),
            "tokenizer.ggml.tokens": array(STR, self.tokens),
            "tokenizer.ggml.scores": Key(ARR, [-float(i) for i in range(len(self.tokens))], F32),
            "tokenizer.ggml.token_type": array(I32, self.kinds),
            "tokenizer.ggml.bos_token_id": u32(self.ids[bos]),
            "tokenizer.ggml.eos_token_id": u32(self.ids[end]),
            "tokenizer.ggml.unknown_token_id": u32(0),
            "tokenizer.ggml.add_bos_token": Key(BOOL, 0),
            "tokenizer.ggml.add_eos_token": Key(BOOL, 0),
            "tokenizer.ggml.add_space_prefix": Key(BOOL, 0),
        }


def words_of(
    texts: Iterable[Sequence[str]],
    controls: Sequence[str],
    shown: Sequence[str],
    cues: Sequence[str],
) -> Words:
    """All that is needed to say the texts, given as pieces."""
    words = Words()
    words.add("<unk>", UNKNOWN)
    for control in controls:
        words.add(control, CONTROL)
    for token in shown:
        words.add(token, USER_DEFINED)
    for byte in range(256):
        words.add(f"<0x{byte:02X}>", BYTE)
    words.add(SPACE, NORMAL)
    words.cues = [words.add(cue, USER_DEFINED) for cue in dict.fromkeys(cues)]
    for piece in (piece for pieces in texts for piece in pieces):
        if is_piece(piece):
            words.add(piece.replace(" ", SPACE), NORMAL)
    return words


def is_piece(text: str) -> bool:
    """Whether a text can be a token that no prompt reaches."""
    return len(text) > 2 and SPACE not in text
