"""The vocabulary: text to token ids, token ids to bytes, the ids that end a generation."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import compress, repeat
from typing import Any, overload

import numpy as np

from worker.budget import Budget
from worker.errors import BackendError, ModelLoadError, RequestError, UnavailableError
from worker.llama import library
from worker.llama.library import native
from worker.llama.text_parts import (
    MAX_PART,
    ControlCuts,
    SafeCuts,
    Splitter,
    TokenizerPatience,
    pairs_of,
    space_parts,
    word_parts,
)
from worker.llama.wordpiece import WordPiece

_CONTROL = 1 << 3  # LLAMA_TOKEN_ATTR_CONTROL
_UNKNOWN = 1 << 0  # LLAMA_TOKEN_ATTR_UNKNOWN
_HIDDEN = _CONTROL | _UNKNOWN
# What llama.cpp looks for in a text before it merges anything.
_SOUGHT = _HIDDEN | 1 << 4  # LLAMA_TOKEN_ATTR_USER_DEFINED
_STRIPS = 1 << 7 | 1 << 8  # LLAMA_TOKEN_ATTR_LSTRIP and RSTRIP
_NULL_TOKEN = -1
_UNKNOWN_WORD = 100  # BERT's, where the file does not say
_INFILL_BYTES = 512
_PROBE, _PROBES = b'{"name": "a_b-1", "is": [true, 2.5]}\n</a>', 64
_TOO_MANY = -(2**31)  # INT32_MIN: the number of tokens is no int32
# Bytes of a token's text that are asked for at first; few tokens are longer.
_Text = ctypes.c_char * 256


class Pieces(Sequence[bytes]):
    """Token id -> bytes. Each is asked for at its first use: a large vocabulary takes long.

    For a long text look-ups are faster than llama.cpp's own detokeniser.
    """

    def __init__(self, size: int, spell: Callable[[int], bytes]) -> None:
        self._known: list[bytes | None] = [None] * size
        self._spell = spell

    def __len__(self) -> int:
        return len(self._known)

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> list[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | list[bytes]:
        """The bytes of a token. Raises IndexError for an id that there is not."""
        if isinstance(index, slice):
            return [self[token] for token in range(*index.indices(len(self)))]
        piece = self._known[index]
        if piece is None:
            token = range(len(self))[index]
            piece = self._known[token] = self._spell(token)
        return piece


class Vocab:
    """A loaded model's vocabulary. Several threads may use it at the same time.

    size         token ids are 0 to size - 1
    end_tokens   all ids that end a generation: EOS, EOT and others that the metadata marks
    suppressed   ids that must not be sampled, by the model's metadata
    pieces       token id -> the bytes that a client sees; control tokens are empty
    spelled      the same, control tokens spelt out
    max_history  the most tokens that a sampler may look back on
    """

    def __init__(self, model: Any, max_history: int) -> None:
        self._handle: Any = None
        self.attach(model)
        handle = self.handle
        self.size = native.llama_vocab_n_tokens(handle)
        kind = native.llama_vocab_type(handle)
        self._is_bpe = kind == native.LLAMA_VOCAB_TYPE_BPE
        self._is_wordpiece = kind == native.LLAMA_VOCAB_TYPE_WPM
        self._normalizer = [
            _field(model, f"tokenizer.ggml.normalizer.{name}")
            for name in ("lowercase", "strip_accents")
        ]
        self._unknown = int(_field(model, "tokenizer.ggml.unknown_token_id") or _UNKNOWN_WORD)
        self.max_history = max_history
        self.adds_bos = bool(native.llama_vocab_get_add_bos(handle))
        self.adds_eos = bool(native.llama_vocab_get_add_eos(handle))
        self.adds_sep = bool(native.llama_vocab_get_add_sep(handle))
        self.sep = _token(native.llama_vocab_sep(handle))
        self.bos = _token(native.llama_vocab_bos(handle))
        self.eos = _token(native.llama_vocab_eos(handle))
        self.bos_name, self.eos_name = (
            "" if token is None else self.name(token) for token in (self.bos, self.eos)
        )
        self.infill = tuple(
            _token(find(handle))
            for find in (
                native.llama_vocab_fim_pre,
                native.llama_vocab_fim_suf,
                native.llama_vocab_fim_mid,
            )
        )
        self.infill_files = (
            _token(native.llama_vocab_fim_rep(handle)),
            _token(native.llama_vocab_fim_sep(handle)),
        )
        ends = library.quick(native.llama_vocab_is_eog)
        are_ends = map(ends, repeat(handle), range(self.size))
        self.end_tokens = frozenset(compress(range(self.size), are_ends))
        self.suppressed = self._suppressed_ids()
        self.pieces = Pieces(self.size, lambda token: self._piece(token, special=False))
        self.spelled = Pieces(
            self.size, lambda token: self.pieces[token] or self.name(token).encode()
        )

    def remember(self, *tokens: int | None) -> None:
        """Look their texts up now: they are asked for while the model is not there, too."""
        for token in tokens:
            if token is not None:
                self.spelled[token]

    @cached_property
    def has_infill_sampler(self) -> bool:
        """Whether llama.cpp's sampler `infill` holds what there is: its texts have 512 bytes."""
        longest = max(map(len, self.pieces))
        return longest <= _INFILL_BYTES and bool(self.end_tokens) and self.eos is not None

    @property
    def handle(self) -> Any:
        """llama.cpp's. Raises UnavailableError while the model is not there."""
        if self._handle is None:
            raise UnavailableError("The model is not in memory.", code="loading")
        return self._handle

    def attach(self, model: Any) -> None:
        """Ask this model of the same file from now on. Raises ModelLoadError."""
        self._handle = native.llama_model_get_vocab(model)
        if not self._handle:
            raise ModelLoadError("llama.cpp returned a model without a vocabulary.")

    def detach(self) -> None:
        """The model is about to go; what was learned of the vocabulary stays."""
        self._handle = None

    def _suppressed_ids(self) -> tuple[int, ...]:
        count = ctypes.c_int32(0)
        array = native.llama_vocab_get_suppress_tokens(self.handle, ctypes.pointer(count))
        ids = [int(array[i]) for i in range(count.value)] if array else []
        return tuple(token for token in ids if 0 <= token < self.size)

    def tokenize(
        self,
        text: str,
        *,
        add_special: bool,
        parse_special: bool,
        param: str = "prompt",
        budget: Budget | None = None,
    ) -> list[int]:
        """Text to ids. Raises RequestError for text that is not valid Unicode.

        add_special:   add BOS/EOS where the model's metadata says so
        parse_special: read control tokens spelt out in the text as those tokens
        param:         the client's field that an error names
        budget:        of a client who asks: it may take as long as `limits.TOKENIZING`, and no
                       longer than the client waits, which is a LeftError

        A long text is read in parts.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise RequestError(f"{param} holds a lone surrogate.", param=param) from None
        if len(text) <= MAX_PART:
            return self._tokenize(text, add_special, parse_special)
        added = self._tokenize("", add_special, parse_special)
        tokens = added[: self.adds_bos]
        patience = None if budget is None else TokenizerPatience(param, budget)
        for part, early in self._splitters[parse_special](text):
            found = self._tokenize(part, False, parse_special)
            if early:
                found = found[len(self._tokenize(part[:early], False, parse_special)) :]
            tokens += found
            if patience is not None:
                patience.check()
        return tokens + added[self.adds_bos :]

    @cached_property
    def ends_of_texts(self) -> Sequence[int]:
        """What the tokenizer puts behind a text."""
        return self._tokenize("", True, False)[self.adds_bos :]

    @cached_property
    def _texts(self) -> list[str]:
        """Token id -> text as the file spells it."""
        spell = library.quick(native.llama_vocab_get_text)
        return [spell(self.handle, token).decode("utf-8", "replace") for token in range(self.size)]

    @cached_property
    def _attributes(self) -> list[int]:
        attribute = library.quick(native.llama_vocab_get_attr)
        return [attribute(self.handle, token) for token in range(self.size)]

    def _special_texts(self, passed_over: int) -> dict[str, int]:
        """Tokens that are looked for in a text before it is split, but those with an attribute of
        `passed_over`."""
        return {
            self._texts[token]: token
            for token, found in enumerate(self._attributes)
            if found & _SOUGHT and not found & passed_over
        }

    @cached_property
    def _wordpiece(self) -> WordPiece:
        lowercase, strips_accents = self._normalizer
        hidden = [bool(found & _HIDDEN) for found in self._attributes]
        return WordPiece(
            ["" if hides else text for text, hides in zip(self._texts, hidden, strict=True)],
            (self._special_texts(_HIDDEN), self._special_texts(0)),
            self._unknown,
            lowercase=None if lowercase is None else lowercase == "true",
            strips_accents=None if strips_accents is None else strips_accents == "true",
        )

    @cached_property
    def _splitters(self) -> tuple[Splitter, Splitter]:
        """Where control tokens are plain text, and where they are read as such."""
        if self._is_bpe:
            return word_parts, word_parts
        is_spm = native.llama_vocab_type(self.handle) == native.LLAMA_VOCAB_TYPE_SPM
        pairs = pairs_of(self._texts) if is_spm else None

        def splitter(passed_over: int) -> Splitter:
            sought = self._special_texts(passed_over)
            if self._is_wordpiece and not any(map(str.isspace, "".join(sought))):
                return space_parts
            strips = any(self._attributes[token] & _STRIPS for token in sought.values())
            controls = ControlCuts(list(sought), strips=strips)
            return controls.parts if pairs is None else SafeCuts(pairs, controls).parts

        return splitter(_HIDDEN), splitter(0)

    def _tokenize(self, text: str, add_special: bool, parse_special: bool) -> list[int]:
        if self._is_wordpiece and text:
            found = self._wordpiece.tokens(text, parse_special=parse_special)
            if not add_special:
                return found
            before = [] if self.bos is None else [self.bos]
            return [*before, *found, *self.ends_of_texts]
        raw = text.encode("utf-8")
        # Room for a token each byte, for BOS, EOS and a space in front is enough for most texts.
        # Where it is not, llama.cpp answers with minus the number of tokens.
        capacity = len(raw) + 8
        for _ in range(2):
            ids = np.empty(capacity, np.int32)
            room = library.pointer_to(ids)
            count = native.llama_tokenize(
                self.handle, raw, len(raw), room, capacity, add_special, parse_special
            )
            if count >= 0:
                return ids[:count].tolist()
            if count == _TOO_MANY:
                raise BackendError("The text has more tokens than llama.cpp can count.")
            capacity = -count
        raise BackendError("The tokenizer gave no stable answer.")

    def within(self, text: bytes) -> list[int]:
        """Tokens that spell just this in the midst of a text, as the model reads it: valid UTF-8,
        of which the last character may be cut off.

        Single bytes where the tokenizer changes a text; what no token spells ends them.
        """
        text = text.decode(errors="ignore").encode()
        if (found := self._within(text)) is not None:
            return found
        found = [self._bytes.get(byte, _NULL_TOKEN) for byte in text]
        return found[: found.index(_NULL_TOKEN)] if _NULL_TOKEN in found else found

    def _within(self, text: bytes) -> list[int] | None:
        before = self._before
        found = self._tokenize((before + text).decode(), False, False)
        if before:
            del found[: len(self._tokenize(before.decode(), False, False))]
        return found if b"".join(map(self.pieces.__getitem__, found)) == text else None

    @cached_property
    def _before(self) -> bytes:
        """What stands before a text that would begin with a space otherwise."""
        first = self._tokenize("a", False, False)[:1]
        return b"\n" if first and self.pieces[first[0]].startswith(b" ") else b""

    @cached_property
    def spells_within(self) -> bool:
        """Whether `within` gives what the model reads: a text comes back, and most tokens do.

        Not so where the tokenizer changes texts, or a file's own does not reach its tokens.
        """
        words = [
            token for token, piece in enumerate(self.pieces) if len(piece) > 2 and piece.isascii()
        ]
        words = words[:: len(words) // _PROBES + 1]
        reached = sum(self._within(self.pieces[token]) == [token] for token in words)
        return 2 * reached >= len(words) and self._within(_PROBE) is not None

    @cached_property
    def _bytes(self) -> dict[int, int]:
        return {piece[0]: token for token, piece in enumerate(self.pieces) if len(piece) == 1}

    @cached_property
    def controls(self) -> dict[str, int]:
        """Control tokens that do not end a generation, spelled out -> token id."""
        attribute = library.quick(native.llama_vocab_get_attr)
        attributes = map(attribute, repeat(self.handle), range(self.size))
        hidden = (token for token, found in enumerate(attributes) if found & _HIDDEN)
        return {self.name(token): token for token in hidden if token not in self.end_tokens}

    def name(self, token: int) -> str:
        """A token as a person would write it, control tokens included."""
        return self._piece(token, special=True).decode("utf-8", "backslashreplace")

    def _piece(self, token: int, *, special: bool) -> bytes:
        # One for each call: native calls release the GIL, so another thread could write into it.
        buffer = _Text()
        count = native.llama_token_to_piece(self.handle, token, buffer, len(buffer), 0, special)
        if count < 0:
            buffer = ctypes.create_string_buffer(-count)
            count = native.llama_token_to_piece(self.handle, token, buffer, -count, 0, special)
        return buffer.raw[:count] if count > 0 else b""


def _field(model: Any, key: str) -> str | None:
    """A number or truth value of the file; None: it does not say."""
    room = ctypes.create_string_buffer(16)
    length = native.llama_model_meta_val_str(model, key.encode(), room, len(room))  # pyright: ignore
    return None if length < 0 else room.value.decode()


def _token(value: Any) -> int | None:
    return None if value == _NULL_TOKEN else int(value)
