"""Constraints compiled for one vocabulary."""

from __future__ import annotations

import ctypes
import hashlib
import re
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from worker import log
from worker.budget import UNBOUNDED, Budget
from worker.errors import BackendError, RequestError
from worker.grammar.constraint import Constraint
from worker.grammar.converted import lark_of, regex_of
from worker.grammar.gbnf import parse_gbnf
from worker.grammar.keywords import DOUBTFUL, Schema
from worker.grammar.schema import SchemaReader
from worker.limits import FUEL, LARK, LARK_PARTS, LEXER_STATES, LOOSENING, SYMBOLS, WAYS
from worker.llama.guides.matcher import AHEAD, Matcher, MatcherError, TokenMask
from worker.llama.guides.native import TokenizeFunction, TokenizerInit, functions
from worker.llama.vocab import Vocab

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Key = tuple[str, bytes]
Loosen = Callable[[Schema | bool, str], str]
# What is kept is taken for 64 kB, 60 bytes for each character of the constraint, and 200 MB for
# each second of CPU time of its making: 1 to 10 times what was measured. An ordinary schema has
# 0.1 MB, 100 tools have 2 MB. What comes and goes leaves holes between what stays, so a large one
# that was made quickly is kept from its second request on: after 300 lists of 4,000 words a process
# holds 58 MB instead of 100 (python -m benchmarks.constraints.churn).
MAX_BYTES, LARGE = 64 << 20, 1 << 20
_BYTES, _BYTES_A_CHAR, _BYTES_A_SECOND = 1 << 16, 60, 200_000_000
# What was refused takes 380 bytes and its reason.
_BYTES_OF_KEY, _MAX_TEXT_BYTES = 400, 16 << 20
LOOSENING_S = LOOSENING.most / 1000
_MOST_KNOWN = 4096
_NO_TOKEN = 0xFFFF_FFFF
_MARK = b"\xff"  # in front of what is no text
_log = log.get("guides")

# How llguidance says that a oneOf is none of those that it can tell apart, or that a limit was
# reached.
_ONE_OF = "oneOf constraints"
_REACHED = re.compile(r"too (big|large|many)|fuel|lexer precomputation failed|; max is")


class CompileEffort(msgspec.Struct, frozen=True):
    """What compiling may take, in llguidance's units.

    chars    of the constraint's text
    fuel     for regular expressions
    symbols  in all rules of the grammar
    """

    chars: int
    fuel: int
    symbols: int


# 100 tools take 30 ms and pass; of what does not pass the worst took 0.2 s.
QUICK = CompileEffort(1 << 16, 50_000, 20_000)
FULL = CompileEffort(LARK.most, FUEL.most, SYMBOLS.most)


class Refused(msgspec.Struct, frozen=True):
    """Why there is no matcher. is_costly: it was more than the effort that was allowed"""

    why: str
    is_costly: bool


def compile_within(
    constraint: Constraint, effort: CompileEffort, tokenizer: int, vocab_size: int
) -> Matcher | Refused:
    """A matcher at the beginning of a text, which knows what may come first.

    It is a copy of the one that was made, which has room to grow and lies between what compiling
    needed for a while. A copy is smaller and leaves smaller holes.
    Raises MatcherError.
    """
    if len(constraint.text) > effort.chars:
        return Refused("it is too long", is_costly=True)
    library = functions()
    init = library.new_init(tokenizer)
    init.limits.max_lexer_states = LEXER_STATES.most
    if constraint.is_written:
        init.limits.max_items_in_row = WAYS.most
    init.limits.initial_lexer_fuel = effort.fuel
    init.limits.max_grammar_size = effort.symbols
    init.limits.verbose_errors = False
    made = Matcher(library.new_matcher(init, constraint.kind.encode(), constraint.text.encode()))
    try:
        if made.error is not None:
            raise MatcherError(made.error)
        _try_first(made, vocab_size)
        return made.copy()
    except MatcherError as error:
        why = re.sub(r"\s+", " ", str(error)).strip().rstrip(".")[:200]
        if _ONE_OF in why:
            why = "two schemas of a oneOf may hold for one value; anyOf can be held"
        return Refused(why, is_costly=bool(_REACHED.search(why)))
    finally:
        made.free()


def _try_first(made: Matcher, vocab_size: int) -> None:
    """Find what may come first, and write one such token: some grammars are too wide for it."""
    mask = TokenMask(vocab_size)
    made.fill(mask)
    words = np.flatnonzero(mask.words)
    if not len(words):
        return
    word = int(words[0])
    token = word * 32 + (int(mask.words[word]) & -int(mask.words[word])).bit_length() - 1
    trial = made.copy()
    try:
        trial.accept(token)
    finally:
        trial.free()


class BoundedCache(Generic[K, V]):
    """Values by their keys, of so many bytes together; the ones not asked for longest go first.

    Any thread may use it. What alone is larger is not kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.num_bytes = 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """The value; None: it is not there."""
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def add(self, key: K, value: V, num_bytes: int) -> None:
        with self._lock:
            self.num_bytes += num_bytes - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, num_bytes
            while self.num_bytes > self.most_bytes:
                self.num_bytes -= self._values.popitem(last=False)[1][1]


class Guides:
    """Compiles constraints for `vocab` and keeps them. Any thread may use it.

    What llguidance needs of the vocabulary is made at the first use, without Python's
    lock. Its time and memory grow with the vocabulary.
    """

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self._lock = threading.Lock()
        self._tokenizer: int | None = None
        self._spell: Any = None  # that the tokenizer calls
        self._kept: BoundedCache[Key, Matcher | Refused] = BoundedCache(MAX_BYTES)
        # Digests of what took long, and of large ones that came before.
        self._long_ones: BoundedCache[bytes, bool] = BoundedCache(_MOST_KNOWN)
        self._large_ones: BoundedCache[bytes, bool] = BoundedCache(_MOST_KNOWN)
        self._texts: BoundedCache[bytes, str] = BoundedCache(
            _MAX_TEXT_BYTES
        )  # of schemas that were loosened
        # While one holds on to what it asked for it is there, whatever else is compiled.
        self._asked: weakref.WeakKeyDictionary[Constraint, Matcher] = weakref.WeakKeyDictionary()
        # One at a time: eight large schemas at once took all CPUs, and /health took 600 ms. Those
        # that take long wait for each other only.
        self._quick, self._long = threading.Lock(), threading.Lock()

    def prepare(self, constraint: Constraint, budget: Budget) -> None:
        """Compile it for who holds on to this very object. Raises what `matcher_of` raises."""
        matcher = self.matcher_of(constraint, budget)
        with self._lock:
            self._asked.pop(constraint, None)
            self._asked[constraint] = matcher

    def matcher_of(self, constraint: Constraint, budget: Budget = UNBOUNDED) -> Matcher:
        """A matcher at the beginning of a text, to be copied. Raises RequestError.

        What may come first is found here, so copies know it. One that takes longer than ordinary
        ones makes way first, which raises too.
        """
        with self._lock:
            tokenizer, asked = self.tokenizer, self._asked.get(constraint)
        if asked is not None:
            return asked
        key = constraint.kind, hashlib.blake2b(constraint.text.encode()).digest()
        found = self._kept.get(key) or self._make(key, constraint, tokenizer, budget)
        if isinstance(found, Refused):
            what = "takes too much to compile" if found.is_costly else "cannot be held"
            constraint.refuse(f"{what}: {found.why}")
        return found

    def _make(
        self, key: Key, constraint: Constraint, tokenizer: int, budget: Budget
    ) -> Matcher | Refused:
        if not self._long_ones.get(key[1]):
            with self._quick:
                found = self._kept.get(key) or self._attempt(key, constraint, QUICK, tokenizer)
            if not _is_costly(found):
                return found
            self._long_ones.add(key[1], True, 1)
        budget.make_way("long")
        with self._long:
            return self._kept.get(key) or self._attempt(key, constraint, FULL, tokenizer)

    def _attempt(
        self, key: Key, constraint: Constraint, effort: CompileEffort, tokenizer: int
    ) -> Matcher | Refused:
        begun = time.thread_time()
        if constraint.kind == "gbnf":
            made = self._follow(constraint, effort, tokenizer)
        else:
            made = compile_within(constraint, effort, tokenizer, self.vocab.size)
        if isinstance(made, Refused):
            if effort is FULL or not made.is_costly:
                self._kept.add(key, made, _BYTES_OF_KEY + len(made.why))
        else:
            size = _BYTES + _BYTES_A_CHAR * len(constraint.text)
            size += int(_BYTES_A_SECOND * (time.thread_time() - begun))
            if size < LARGE or effort is FULL or self._large_ones.get(key[1]):
                self._kept.add(key, made, size)
            else:
                self._large_ones.add(key[1], True, 1)
        return made

    def _follow(
        self, constraint: Constraint, effort: CompileEffort, tokenizer: int
    ) -> Matcher | Refused:
        """GBNF: as a regular expression where it is one that can be held, else in Lark."""
        grammar = parse_gbnf(constraint.text, constraint.param)
        regex = regex_of(grammar)
        if regex is not None:
            plain = msgspec.structs.replace(constraint, kind="regex", text=regex)
            made = compile_within(plain, effort, tokenizer, self.vocab.size)
            if isinstance(made, Matcher) or (made.is_costly and effort is QUICK):
                return made
            if len(grammar.repeats) > LARK_PARTS.most:
                return made  # in Lark each would be a place of its own
        plain = msgspec.structs.replace(constraint, kind="lark", text=lark_of(grammar))
        return compile_within(plain, effort, tokenizer, self.vocab.size)

    def loosener(self) -> Loosen:
        """For the schemas of one request; its CPU time is LOOSENING_S.

        (schema, what it belongs to) -> the schema without what cannot be held, as text for `%json`
        in Lark; at worst its type, which is object where it names none. The log says what was
        left out.
        """
        begun = time.thread_time()

        def loosen(schema: Schema | bool, what: str) -> str:
            key = hashlib.blake2b(msgspec.json.encode(schema)).digest()
            text = self._texts.get(key)
            if text is None:
                left = begun + LOOSENING_S - time.thread_time()
                text = self._loosen(schema, what) if left > 0 else None
                if text is None:
                    _log.warning("a schema is not held", schema=what)
                    text = SchemaReader(_barest(schema), what, without=frozenset()).text
                if left > 0:
                    self._texts.add(key, text, _BYTES_OF_KEY + len(text))
            return text

        return loosen

    def _loosen(self, schema: Schema | bool, what: str) -> str | None:
        with self._lock:
            tokenizer = self.tokenizer
        for without in DOUBTFUL:
            try:
                reader = SchemaReader(schema, what, without=without)
                constraint = Constraint(kind="json_schema", text=reader.text, param=what)
            except RequestError:
                continue
            with self._quick:
                made = compile_within(constraint, QUICK, tokenizer, self.vocab.size)
            if isinstance(made, Refused):
                continue
            made.free()
            if reader.dropped:
                _log.warning("parts of a schema are not held", schema=what, parts=reader.dropped)
            return reader.text
        return None

    @property
    def tokenizer(self) -> int:
        """The vocabulary as llguidance holds it, made at the first use; under the lock."""
        if self._tokenizer is None:
            self._tokenizer = self._make_tokenizer()
            weakref.finalize(self, functions().free_tokenizer, self._tokenizer).atexit = False
        return self._tokenizer

    def _make_tokenizer(self) -> int:
        vocab = self.vocab
        self._spell = _spelling(vocab) if vocab.spells_within else None
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
            tokenize_assumes_string=self._spell is not None,
            # Without one nothing is forced: the model chooses among all spellings.
            tokenize_fn=self._spell or TokenizeFunction(),
            use_approximate_greedy_tokenize_fn=self._spell is None,
            tok_eos_extra=ends[1:].ctypes.data if len(ends) > 1 else None,
            tok_eos_extra_count=len(ends) - 1,
        )
        found = functions().new_tokenizer_v2(init, error, len(error))
        if not found:
            reason = error.value.decode("utf-8", "replace")
            raise BackendError(f"llguidance does not take the vocabulary: {reason}")
        return found

    def spell(self, text: bytes) -> list[int]:
        """Tokens that spell these bytes; fewer where there are none."""
        ids = np.empty(len(text) + 1, np.uint32)
        count = functions().tokenize_bytes(
            self._tokenizer, text, len(text), ids.ctypes.data, len(ids)
        )
        return ids[:count].tolist()


def _spelling(vocab: Vocab) -> Any:
    """The vocabulary's own spelling of what must come, as native code calls it: of its beginning,
    where it is long."""

    def spell(_: Any, text: Any, size: int, into: Any, room: int) -> int:
        tokens = vocab.within(text[: min(size, AHEAD)])
        for place, token in enumerate(tokens[:room]):
            into[place] = token
        return len(tokens)

    return TokenizeFunction(spell)


def _barest(schema: Schema | bool) -> Schema:
    """What is left of a schema that cannot be held at all."""
    if isinstance(schema, dict) and schema.keys() & {"type", "const", "enum"}:
        return {"type": schema.get("type")}
    return {"type": "object"}


def _is_costly(found: Matcher | Refused) -> bool:
    return isinstance(found, Refused) and found.is_costly
