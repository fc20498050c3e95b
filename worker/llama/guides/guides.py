"""Constraints compiled for one vocabulary."""

from __future__ import annotations

import contextlib
import ctypes
import re
import threading
import weakref
from collections import OrderedDict

import msgspec
import numpy as np

from worker import log
from worker.errors import BackendError, RequestError
from worker.grammar.check import check_gbnf
from worker.grammar.constraint import Constraint
from worker.grammar.gbnf import Grammar
from worker.grammar.keywords import DOUBTFUL
from worker.grammar.regular import regex_of
from worker.grammar.schema import Schema, SchemaReader
from worker.llama.guides.gbnf import GbnfMatcher
from worker.llama.guides.matcher import Matcher, MatcherError
from worker.llama.guides.native import TokenizerInit, functions
from worker.llama.sampling.workspace import Workspace
from worker.llama.vocab import Vocab

AnyMatcher = Matcher | GbnfMatcher
MAX_KEPT = 512  # compiled constraints, of 25 kB each for ordinary schemas
# Of the lexer, for each text: 0.7 kB each. A string with maxLength takes 20 for each token.
_MAX_LEXER_STATES = 100_000
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
        # One at a time: eight large schemas at once took all CPUs, and /health took 600 ms.
        self._compiling = threading.Lock()

    def compiled(self, constraint: Constraint) -> AnyMatcher:
        """A matcher at the beginning of a text, to be copied. Raises RequestError.

        What may come first is found here, so copies know it.
        """
        key = constraint.kind, constraint.text
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
            tokenizer = self.tokenizer
        with self._compiling:
            follow = self._follow if constraint.kind == "gbnf" else self._compile
            made = follow(constraint, tokenizer)
        with self._lock:
            self._kept[key] = made
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return made

    def _follow(self, constraint: Constraint, tokenizer: int) -> AnyMatcher:
        """GBNF: as a regular expression where it is one, else by llama.cpp."""
        check_gbnf(constraint.text, constraint.param)
        pattern = regex_of(Grammar(constraint.text, constraint.param))
        if pattern is not None:
            plain = msgspec.structs.replace(constraint, kind="regex", text=pattern)
            with contextlib.suppress(RequestError):
                return self._compile(plain, tokenizer)
        return GbnfMatcher(constraint, self._vocab, self._workspace)

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
        try:
            if made.error is not None:
                raise MatcherError(made.error)
            made.fill(np.empty((self._vocab.size + 31) // 32, np.uint32))
        except MatcherError as error:
            why = re.sub(r"\s+", " ", str(error)).strip().rstrip(".")[:200]
            raise RequestError(
                f"{constraint.param} cannot be held: {why}.", param=constraint.param
            ) from None
        return made

    @property
    def tokenizer(self) -> int:
        """The vocabulary as llguidance holds it, made at the first use; under the lock."""
        if self._tokenizer is None:
            self._tokenizer = self._make_tokenizer()
            weakref.finalize(self, functions().free_tokenizer, self._tokenizer).atexit = False
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
