"""Whether a tokenizer that spells unknown texts byte by byte has a token for each byte."""

from __future__ import annotations

from worker.gguf.header import RECONVERT, refuse
from worker.gguf.policy import Policy
from worker.gguf.strings import StringArray
from worker.model.families import Family

_TOKENS = "tokenizer.ggml.tokens"
_NAMED = [b"<0x%02X>" % byte for byte in range(256)]
_LETTERS = {0x09: b"t", 0x0A: b"n", 0x0D: b"r"}


def check_spelling(family: Family, model: str, tokens: StringArray, policy: Policy) -> None:
    """Raise BAD_BYTE_TOKEN where a text could hold a byte that has no token.

    RWKV's tokenizer would go round for ever at one; the others throw through llama.cpp's C
    interface.
    """
    if policy.allow_missing_byte_tokens:
        return
    if model == "rwkv":
        absent = _absent_of_rwkv(tokens)
    elif family.has_bytes:
        absent = _absent(model, tokens)
    else:
        return
    if absent:
        name = _NAMED[absent[0]].decode()
        raise refuse(
            "BAD_BYTE_TOKEN", f"There is no token {name}, so a text with that byte would fail.",
            field=_TOKENS, got=len(absent), limit=0,
            hint="Convert the model again, or allow it in the policy." if family.has_bytes
            else RECONVERT,
        )  # fmt: skip


def _absent(model: str, tokens: StringArray) -> list[int]:
    """Bytes without a token."""
    found = tokens.find(_NAMED)
    absent = [byte for byte, text in enumerate(_NAMED) if text not in found]
    # SentencePiece can also spell a byte with a token whose text is that byte.
    if model == "llama" and absent:
        plain = tokens.find([bytes([byte]) for byte in absent])
        absent = [byte for byte in absent if bytes([byte]) not in plain]
    return absent


def _absent_of_rwkv(tokens: StringArray) -> list[int]:
    """Bytes that are no token by themselves, in any way to write them."""
    written = [_written(byte) for byte in range(256)]
    found = tokens.find([text for texts in written for text in texts])
    return [byte for byte, texts in enumerate(written) if not any(text in found for text in texts)]


def _written(byte: int) -> list[bytes]:
    """A byte as RWKV's tokens are written, with escapes; llama.cpp reads lower-case digits only."""
    texts = [b"\\x%02x" % byte]
    if byte in _LETTERS:
        texts.append(b"\\" + _LETTERS[byte])
    if byte != ord("\\"):
        texts.append(bytes([byte]))
    if byte not in b"tnrx":
        texts.append(b"\\" + bytes([byte]))
    return texts
