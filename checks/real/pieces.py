"""What a model's tokens spell, read from its file without llama.cpp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tests.support.models.ggufs import byte_alphabet
from worker.gguf.reader import read_header
from worker.gguf.strings import StringArray

CONTROL = 3  # a token type of GGUF
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def pieces_of(path: Path) -> list[str]:
    """Token id -> its text as answers write it: `bytes:\\xe2` for a part, "" for control tokens."""
    keys = read_header(path).keys
    tokens = list(cast(StringArray, keys["tokenizer.ggml.tokens"]))
    kinds = cast(Sequence[int], keys["tokenizer.ggml.token_type"])
    if keys["tokenizer.ggml.model"] == "gpt2":
        values = {letter: value for value, letter in enumerate(byte_alphabet())}

        def spell(token: str) -> str:
            return _text(bytes(values[letter] for letter in token))
    else:

        def spell(token: str) -> str:
            byte = _BYTE.fullmatch(token)
            return _text(bytes([int(byte[1], 16)])) if byte else token.replace("▁", " ")

    return [
        "" if kind == CONTROL else spell(token) for token, kind in zip(tokens, kinds, strict=True)
    ]


def _text(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
