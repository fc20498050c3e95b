"""Constraints compiled for one vocabulary."""

from __future__ import annotations

import ctypes
import re
import threading
import weakref
from collections import OrderedDict

import numpy as np

from worker import log
from worker.errors import BackendError, RequestError
from worker.grammar.constraint import Constraint
from worker.grammar.keywords import DOUBTFUL
from worker.grammar.schema import Schema, SchemaReader
from worker.llama.guides.gbnf import GbnfMatcher
from worker.llama.guides.matcher import Matcher
from worker.llama.guides.native import TokenizerInit, functions
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

AnyMatcher = Matcher | GbnfMatcher
MAX_KEPT = 512  # compiled constraints, of 25 kB each for ordinary schemas
# Of the library's own limits those that would take too much: compiling for 20 ms of lexers, and
# 20 MB of lexer states for each text.
_MAX_LEXER_STATES = 20_000
_NO_TOKEN = 0xFFFF_FFFF
_MARK = b"\xff"  # in front of what is no text

_log = log.get("guides")


class Guides:
    """Compiles constraints and keeps them. Any thread may use it.

    What llguidance needs of the vocabulary is made at the first use, without Python's lock: 0.06 s
    of CPU time and 14 MB for 32,000 tokens, 1.0 s and 113 MB for 262,144.
    """

    def __init__(self, vocab: Vocab, workspace: Workspace) -> None:
        """`workspace`: of the thread that copies what is compiled here."""
        self._vocab = vocab
        self._workspace = workspace
        self._lock = threading.Lock()
        self._tokenizer: int | None = None
        self._kept: OrderedDict[tuple[str, str], AnyMatcher] = OrderedDict()

    def compiled(self, constraint: Constraint) -> AnyMatcher:
        """A matcher at the beginning of a text, to be copied. Raises RequestError."""
        key = constraint.kind, constraint.text
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            tokenizer = None if constraint.kind == "gbnf" else self.tokenizer
        if tokenizer is None:
            made = GbnfMatcher(constraint, self._vocab, self._workspace)
        else:
            made = self._compile(constraint, tokenizer)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def loosened(self, schema: Schema | bool, what: str) -> str:
        """A schema without what cannot be held, as text for `%json` in Lark; any object at worst.

        For what must not fail a request, a tool's parameters for example. The log says what was
        left out of `what`.
        """
        for without in DOUBTFUL:
            try:
                reader = SchemaReader(schema, what, without=without)
                self.compiled(Constraint(kind="json_schema", text=reader.text, param=what))
            except RequestError:
                continue
            if reader.dropped:
                _log.warning("parts of a schema are not held", schema=what, parts=reader.dropped)
            return reader.text
        _log.warning("a schema is not held", schema=what)
        return SchemaReader({"type": "object"}, what).text

    def _compile(self, constraint: Constraint, tokenizer: int) -> Matcher:
        library = functions()
        init = library.new_init(tokenizer)
        init.limits.max_lexer_states = _MAX_LEXER_STATES
        init.limits.verbose_errors = False
        made = Matcher(
            library.new_matcher(init, constraint.kind.encode(), constraint.text.encode())
        )
        if made.error is not None:
            why = re.sub(r"\s+", " ", made.error).strip().rstrip(".")[:200]
            raise RequestError(f"{constraint.param} cannot be held: {why}.", param=constraint.param)
        return made

    @property
    def tokenizer(self) -> int:
        """The vocabulary as llguidance holds it, made at the first use; under the lock."""
        if self._tokenizer is None:
            self._tokenizer = self._make_tokenizer()
            weakref.finalize(self, functions().free_tokenizer, self._tokenizer)
        return self._tokenizer

    def _make_tokenizer(self) -> int:
        vocab = self._vocab
        tokens = [
            _MARK + vocab.name(token).encode() if token in vocab.end_tokens or not piece else piece
            for token, piece in enumerate(vocab.pieces)
        ]
        lengths = np.array([len(token) for token in tokens], np.uint32)
        ends = np.array(sorted(vocab.end_tokens) or [_NO_TOKEN], np.uint32)
        error = ctypes.create_string_buffer(256)
        init = TokenizerInit(
            struct_size=ctypes.sizeof(TokenizerInit),
            vocab_size=len(tokens),
            tok_eos=int(ends[0]),
            token_lens=lengths.ctypes.data,
            token_bytes=b"".join(tokens),
            # It never tokenises: nothing is forced, the model chooses among all spellings.
            use_approximate_greedy_tokenize_fn=True,
            tok_eos_extra=ends[1:].ctypes.data if len(ends) > 1 else None,
            tok_eos_extra_count=len(ends) - 1,
        )
        found = functions().new_tokenizer_v2(init, error, len(error))
        if not found:
            reason = error.value.decode("utf-8", "replace")
            raise BackendError(f"llguidance does not take the vocabulary: {reason}")
        return found

    def spell(self, text: bytes) -> list[int]:
        """Any tokens that spell these bytes, the longest first; fewer where there are none."""
        ids = (ctypes.c_uint32 * (len(text) + 1))()
        count = functions().tokenize_bytes(self._tokenizer, text, len(text), ids, len(ids))
        return ids[: min(count, len(ids))]
