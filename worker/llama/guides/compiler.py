"""One constraint becomes a matcher, within limits."""

from __future__ import annotations

import re

import msgspec
import numpy as np

from worker.grammar.constraint import Constraint
from worker.limits import FUEL, LARK, LEXER_STATES, SYMBOLS
from worker.llama.guides.matcher import Matcher, MatcherError, TokenMask
from worker.llama.guides.native import functions

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
    needed for a while. A copy is a fifth smaller and leaves smaller holes: with 256 MiB of them a
    process held 139 MB after 800 lists of 4,000 words, and 147 without copies.
    """
    if len(constraint.text) > effort.chars:
        return Refused("it is too long", is_costly=True)
    library = functions()
    init = library.new_init(tokenizer)
    init.limits.max_lexer_states = LEXER_STATES.most
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
