"""Vocabulary, scores, merges and special tokens.

Native code asserts where a token's text is there twice, and where BOS, EOS or SEP is to be added
and does not exist. At a byte without a token it throws an exception through its C interface.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from worker.errors import ModelFileError
from worker.gguf.fields import Fields
from worker.gguf.header import RECONVERT, TYPES, refuse
from worker.gguf.strings import StringArray, fingerprints, is_missing
from worker.model.tokenizer import (
    FAMILIES,
    ID_KEYS,
    NO_MERGES,
    NO_VOCABULARY,
    PRE_TOKENIZERS,
    WHITESPACE,
    Family,
    additions,
    settle_pre,
    token_ids,
)

_MODEL, _PRE, _TOKENS = "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.tokens"
_SCORES, _KINDS = "tokenizer.ggml.scores", "tokenizer.ggml.token_type"
_MERGES, _CHARSMAP = "tokenizer.ggml.merges", "tokenizer.ggml.precompiled_charsmap"
_SUPPRESS, _TEMPLATE = "tokenizer.ggml.suppress_tokens", "tokenizer.chat_template"
_BYTE_KIND, _MAX_KIND = 6, 6
MAX_VOCAB, MAX_TOKEN_BYTES, MAX_TEMPLATE_BYTES = 1 << 20, 65_536, 256 << 10
_BYTE = re.compile(rb"<0x[0-9A-Fa-f]{2}>")
_FLAGS = (
    "add_bos_token",
    "add_eos_token",
    "add_sep_token",
    "add_space_prefix",
    "remove_extra_whitespaces",
)

MAX_BYTES = 4 << 20  # T5's has 0.2 MB
MAX_DEPTH = 1024  # bytes of a text that is replaced; T5's have 24 at most

_Nodes = NDArray[np.int64]


def charsmap_problem(raw: bytes) -> str:
    """What is wrong with the table by which T5's tokenizer writes one text for another
    (SentencePiece's charsmap), as the end of "it must be ..."; empty: nothing.

    Native code walks it for each text, and throws an exception through its C interface where a walk
    leaves the table. So each place that a walk can reach is looked at here.

    The layout is that of an XOR-compressed double array (Kanda 2018), as in llama.cpp's
    `llm_tokenizer_ugm_session::normalize_prefix`:

        UINT32 size     bytes of the table
        UINT32[] node   bits 0 to 7 the byte that leads here, 8 whether a text ends here, 9 whether
                        the base is shifted by 8, 10 to 30 the base; or a place among the texts
        texts           each ends with NUL

    From the node at `i` a walk goes on at `i ^ base(i) ^ byte`.
    """
    if len(raw) > MAX_BYTES:
        return f"at most {MAX_BYTES} bytes long"
    size = int.from_bytes(raw[:4], "little")
    if len(raw) < 4 or size + 4 >= len(raw):
        return f"longer than its table of {size} bytes"
    nodes = np.frombuffer(raw, "<u4", size // 4, 4).astype(np.int64)
    if not len(nodes):
        return ""
    return _walk_problem(nodes, raw[4 + size :].rfind(b"\0"))


def _walk_problem(nodes: _Nodes, last_end: int) -> str:
    """Follow all texts at once, byte by byte. last_end: place of the last NUL among the texts."""
    count = len(nodes)
    places = np.arange(count)
    labels = nodes & (1 << 31 | 0xFF)
    onward = places ^ (nodes >> 10 << ((nodes & 1 << 9) >> 6))
    inner = np.flatnonzero((labels > 0) & (labels < 256))
    # The nodes by the place that a walk comes from: those of one place stand side by side.
    inner = inner[np.argsort(inner ^ labels[inner], kind="stable")]
    origins = inner ^ labels[inner]
    seen = np.zeros(count, np.bool_)
    front = onward[:1]
    for _ in range(MAX_DEPTH):
        if (front | 0xFF).max(initial=0) >= count:
            return "a table that no text leads out of"
        front = np.unique(front[~seen[front]])
        if not len(front):
            return ""
        seen[front] = True
        begins = np.searchsorted(origins, front)
        lengths = np.searchsorted(origins, front, "right") - begins
        before: _Nodes = np.repeat(np.cumsum(lengths) - lengths, lengths)
        steps = np.arange(len(before)) - before
        reached = inner[np.repeat(begins, lengths) + steps]
        front = onward[reached]
        ends = front[(nodes[reached] & 1 << 8) > 0]
        if ends.max(initial=0) >= count:
            return "a table that no text leads out of"
        if (nodes[ends] & (1 << 31) - 1).max(initial=-1) > last_end:
            return "a table whose replacements end"
    return f"a table of texts of at most {MAX_DEPTH} bytes"


def check_tokenizer(fields: Fields) -> None:
    """Raise ModelFileError where llama.cpp would refuse the tokenizer or fail on some texts."""
    model = fields.text(_MODEL)
    if model is None:
        fields.refuse_missing(_MODEL)
    family = FAMILIES.get(model)
    if family is None:
        fields.bad(_MODEL, model[:80], "a known tokenizer", "UNKNOWN_TOKENIZER")
    _check_template(fields)
    if model in NO_VOCABULARY:
        return
    pre = settle_pre(family, model, fields.text(_PRE))
    alone = pre == WHITESPACE and model != WHITESPACE
    if family.bpe and (alone or pre not in PRE_TOKENIZERS):
        fields.bad(
            _PRE, pre[:80], "a pre-tokenizer known to this llama.cpp", "UNKNOWN_PRE_TOKENIZER"
        )
    tokens = _check_tokens(fields)
    _check_scores(fields, len(tokens))
    _check_kinds(fields, tokens, model)
    if family.bpe:
        _check_merges(fields, tokens, pre)
    if model == "t5":
        _check_charsmap(fields)
    _check_special(fields, family, pre, model, tokens)
    check_spelling(family, model, tokens)


def _check_tokens(fields: Fields) -> StringArray:
    tokens = fields.strings(_TOKENS)
    if tokens is None:
        fields.refuse_missing(_TOKENS)
    if not 1 <= len(tokens) <= MAX_VOCAB:
        fields.bad(_TOKENS, len(tokens), f"1 to {MAX_VOCAB} tokens", "BAD_TOKENS")
    longest = int(tokens.lengths.argmax())
    if int(tokens.lengths[longest]) > MAX_TOKEN_BYTES:
        raise _bad_token(
            fields,
            "TOKEN_TOO_LONG",
            longest,
            int(tokens.lengths[longest]),
            f"is longer than {MAX_TOKEN_BYTES} bytes",
        )
    if tokens.has_nul():
        first = next(i for i, text in enumerate(tokens.raw_list()) if b"\0" in text)
        raise _bad_token(fields, "BAD_TOKENS", first, tokens[first], "has a NUL byte")
    again = tokens.duplicate()
    if again is not None:
        raise _bad_token(fields, "DUPLICATE_TOKEN", again, tokens[again], "was there before")
    # llama.cpp gives an empty token the text [EMPTY_id].
    empty = np.flatnonzero(tokens.lengths == 0)
    stand_ins = tokens.find([b"[EMPTY_%d]" % index for index in empty]) if len(empty) else {}
    for text, index in stand_ins.items():
        raise _bad_token(
            fields,
            "DUPLICATE_TOKEN",
            index,
            text.decode(),
            "is what llama.cpp calls an empty token",
        )
    return tokens


def _check_scores(fields: Fields, size: int) -> None:
    scores = fields.get(_SCORES)
    if scores is None:
        return
    if not isinstance(scores, np.ndarray) or scores.dtype.name not in ("float32", "int32"):
        fields.wrong_type(_SCORES, "an array of FLOAT32 or INT32")
    _check_length(fields, _SCORES, len(scores), size, "BAD_SCORES")
    finite: np.ndarray[tuple[int], np.dtype[np.bool_]] = np.isfinite(scores)
    if not finite.all():
        index = int(finite.argmin())
        fields.bad(_SCORES, float(scores[index]), "finite everywhere", "BAD_SCORES")


def _check_kinds(fields: Fields, tokens: StringArray, model: str) -> None:
    kinds = fields.get(_KINDS)
    if kinds is None:
        return
    if not isinstance(kinds, np.ndarray) or kinds.dtype.name != "int32":
        fields.wrong_type(_KINDS, "an array of INT32")
    numbers = kinds.astype(np.int32, copy=False)
    _check_length(fields, _KINDS, len(numbers), len(tokens), "BAD_TOKEN_TYPES")
    odd = np.flatnonzero((numbers < 0) | (numbers > _MAX_KIND))
    if len(odd):
        fields.bad(_KINDS, int(numbers[odd[0]]), f"0 to {_MAX_KIND}", "BAD_TOKEN_TYPES")
    for index in np.flatnonzero(numbers[: len(tokens)] == _BYTE_KIND):
        if model == "bert":  # native code aborts where it spells one
            raise _bad_token(
                fields,
                "BAD_BYTE_TOKEN",
                int(index),
                tokens[int(index)],
                "is said to be a byte, and WordPiece has none",
            )
        if not _BYTE.fullmatch(tokens.raw(int(index))):
            raise _bad_token(
                fields,
                "BAD_BYTE_TOKEN",
                int(index),
                tokens[int(index)],
                "is said to be a byte, but is not <0x00> to <0xFF>",
            )


def _check_length(fields: Fields, key: str, length: int, size: int, code: str) -> None:
    if length != size:
        fields.bad(key, length, f"one element for each of {size} tokens", code)


def _check_merges(fields: Fields, tokens: StringArray, pre: str) -> None:
    merges = fields.strings(_MERGES)
    if merges is None:
        if pre not in NO_MERGES:
            fields.refuse_missing(_MERGES)
        return
    if not len(merges):
        return
    # The first space parts a merge. But a space at the very begin belongs to the first part.
    blank = merges.without_prefixes()
    spaces = np.flatnonzero(blank == 0x20)
    ends = merges.starts + merges.lengths
    spots = spaces
    if len(spaces) != len(merges) or (spaces <= merges.starts).any() or (spaces >= ends).any():
        spaces = np.append(spaces, len(merges.data))
        spots = spaces[np.searchsorted(spaces, merges.starts + 1)]
    odd = np.flatnonzero(spots >= ends)
    if len(odd):
        index = int(odd[0])
        raise _bad_merge(fields, index, merges[index], "is not two parts with a space between")
    left = fingerprints(merges.data, merges.starts, spots - merges.starts)
    right = fingerprints(merges.data, spots + 1, ends - spots - 1)
    if is_missing(np.concatenate((left, right)), tokens.fingerprints):
        known = set(tokens.raw_list())
        for index in range(len(merges)):
            text = merges.raw(index)
            cut = text.index(b" ", 1)
            if not {text[:cut], text[cut + 1 :]} <= known:
                raise _bad_merge(fields, index, merges[index], "joins a part that is no token")


def _check_charsmap(fields: Fields) -> None:
    charsmap = fields.get(_CHARSMAP)
    if charsmap is None:
        return
    if not isinstance(charsmap, np.ndarray) or charsmap.dtype.name not in ("int8", "uint8"):
        fields.wrong_type(_CHARSMAP, "an array of UINT8 or INT8")
    problem = charsmap_problem(charsmap.tobytes())
    if problem:
        fields.bad(_CHARSMAP, f"{len(charsmap)} bytes", problem, "BAD_CHARSMAP")


def _check_special(
    fields: Fields, family: Family, pre: str, model: str, tokens: StringArray
) -> None:
    size = len(tokens)
    for key in (key for keys in ID_KEYS.values() for key in keys):
        full = f"tokenizer.ggml.{key}"
        read = key != "cls_token_id" and full in fields
        if read and fields.header.types[full] != TYPES["UINT32"]:
            fields.wrong_type(full, "UINT32")
    for key in _FLAGS:
        fields.flag(f"tokenizer.ggml.{key}")
    suppressed = fields.get(_SUPPRESS)
    if suppressed is not None:
        if not isinstance(suppressed, np.ndarray) or suppressed.dtype.name != "int32":
            fields.wrong_type(_SUPPRESS, "an array of INT32")
        ids = suppressed.astype(np.int32, copy=False)
        odd = ids[(ids < 0) | (ids >= size)]
        if len(odd):
            fields.bad(_SUPPRESS, int(odd[0]), f"0 to {size - 1}", "BAD_TOKENS")
    ids = token_ids(fields, family, pre, size, {})
    always = model == "bert"  # adds BOS and SEP whatever the flags say
    add_bos, add_eos, _ = additions(fields, family, pre)
    for role, added in (("bos", add_bos or always), ("eos", add_eos), ("sep", always)):
        if added and role not in ids:
            raise refuse(
                "NO_BOS",
                f"{role.upper()} is to be added to each text, but there is none.",
                field=f"tokenizer.ggml.{ID_KEYS[role][0]}",
                got=None,
                limit=f"0 to {size - 1}",
                hint="Set the id, or the add flag to false, with gguf_set_metadata.py.",
            )


def _check_template(fields: Fields) -> None:
    for key in fields.header.keys:
        if key != _TEMPLATE and not key.startswith(_TEMPLATE + "."):
            continue
        template = fields.text(key) or ""
        size = len(template.encode())
        if size > MAX_TEMPLATE_BYTES:
            fields.bad(
                key, f"{size} bytes long", f"at most {MAX_TEMPLATE_BYTES}", "TEMPLATE_TOO_LONG"
            )


def _bad_token(fields: Fields, code: str, index: int, got: object, problem: str) -> ModelFileError:
    return refuse(
        code,
        f"Token {index} {problem}.",
        at=fields.header.offsets.get(_TOKENS),
        field=_TOKENS,
        got=got,
        hint=RECONVERT,
    )


def _bad_merge(fields: Fields, index: int, text: str, problem: str) -> ModelFileError:
    return refuse(
        "BAD_MERGES",
        f"Merge {index} {problem}.",
        at=fields.header.offsets.get(_MERGES),
        field=_MERGES,
        got=text,
        hint=RECONVERT,
    )


_NAMED = [b"<0x%02X>" % byte for byte in range(256)]
_LETTERS = {0x09: b"t", 0x0A: b"n", 0x0D: b"r"}


def check_spelling(family: Family, model: str, tokens: StringArray) -> None:
    """Raise BAD_BYTE_TOKEN where a text could hold a byte that has no token.

    RWKV's tokenizer would go round for ever at one; the others throw through llama.cpp's C
    interface.
    """
    if model == "rwkv":
        absent = _absent_of_rwkv(tokens)
    elif family.has_bytes:
        absent = _absent(model, tokens)
    else:
        return
    if absent:
        name = _NAMED[absent[0]].decode()
        raise refuse(
            "BAD_BYTE_TOKEN",
            f"There is no token {name}, so a text with that byte would fail.",
            field=_TOKENS,
            got=len(absent),
            limit=0,
            hint=RECONVERT,
        )


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
    written = [_byte_texts(byte) for byte in range(256)]
    found = tokens.find([text for texts in written for text in texts])
    return [byte for byte, texts in enumerate(written) if not any(text in found for text in texts)]


def _byte_texts(byte: int) -> list[bytes]:
    """A byte as RWKV's tokens are written, with escapes; llama.cpp reads lower-case digits only."""
    texts = [b"\\x%02x" % byte]
    if byte in _LETTERS:
        texts.append(b"\\" + _LETTERS[byte])
    if byte != ord("\\"):
        texts.append(bytes([byte]))
    if byte not in b"tnrx":
        texts.append(b"\\" + bytes([byte]))
    return texts
