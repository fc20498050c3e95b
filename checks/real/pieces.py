"""What a model's tokens spell, read from its file without llama.cpp."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast

from tests.support.models.ggufs import byte_alphabet
from worker.gguf.reader import read_header
from worker.gguf.strings import StringArray

_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def pieces_of(path: Path) -> list[str]:
    """Token id -> its text, as answers write tokens: a part of a character as `bytes:\\xe2`."""
    keys = read_header(path).keys
    tokens = list(cast(StringArray, keys["tokenizer.ggml.tokens"]))
    if keys["tokenizer.ggml.model"] == "gpt2":
        values = {letter: value for value, letter in enumerate(byte_alphabet())}
        return [_text(bytes(values[letter] for letter in token)) for token in tokens]
    return [
        _text(bytes([int(byte[1], 16)]))
        if (byte := _BYTE.fullmatch(token))
        else token.replace("▁", " ")
        for token in tokens
    ]


def _text(piece: bytes) -> str:
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)
