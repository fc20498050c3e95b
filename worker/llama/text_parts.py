"""Long texts in parts, so that the tokeniser can be stopped between them.

A call of llama.cpp's tokeniser cannot be interrupted, and some texts take it time that grows with
the square of their length: for SentencePiece it makes room for each byte anew where it spells a
character byte by byte, and for all kinds it walks through all control tokens found so far to add
one more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from worker.budget import Budget
from worker.errors import RequestError
from worker.limits import TOKENIZING

# For BPE llama.cpp splits a text with regular expressions that recurse for each character of a
# match. A word of 25,000 characters needs more than a stack of 8 MiB, and the process ends.
MAX_PART = 8192
_WORD_END = re.compile(r"[A-Za-z0-9](?= [A-Za-z0-9])")
_WHITE = re.compile(r"\s")
_NEAR = 256  # a part may end so many characters earlier, where a word ends

# 1,024 characters that are spelt byte by byte take 4 ms, 8,192 take 0.3 s.
_PART = 1024
# Without a place to cut. So many line breaks take 1 s, where they are spelt byte by byte.
MAX_UNCUT = 32_768
_SPACE = "\u2581"  # as SentencePiece writes it

# A text, and how many characters at its beginning were in the part before.
TextPart = tuple[str, int]
Pairs = set[tuple[str, str]]
Splitter = Callable[[str], Iterator[TextPart]]


class TokenizerPatience:
    """How long a text may take: CPU time, so that a busy machine refuses nothing."""

    def __init__(self, param: str, budget: Budget) -> None:
        self._param, self._budget = param, budget
        self.end = time.thread_time() + TOKENIZING.most / 1000

    def check(self) -> None:
        """Raise RequestError where it is over, LeftError where nobody waits any more."""
        self._budget.check()
        if time.thread_time() > self.end:
            raise RequestError(
                f"Tokenizing {self._param} takes longer than {TOKENIZING.most} ms.",
                param=self._param,
                hint="Shorten it.",
                code=TOKENIZING.code,
            )


def word_parts(text: str) -> Iterator[TextPart]:
    """Parts of at most MAX_PART characters, cut between words where possible; for BPE."""
    begin = 0
    while len(text) - begin > MAX_PART:
        stop = begin + MAX_PART
        for found in _WORD_END.finditer(text, stop - _NEAR, stop):
            stop = found.end()
        yield text[begin:stop], 0
        begin = stop
    yield text[begin:], 0


def space_parts(text: str) -> Iterator[TextPart]:
    """Parts of _PART characters or more, cut in front of white space; for WordPiece."""
    begin = 0
    while found := _WHITE.search(text, begin + _PART):
        yield text[begin : found.start()], 0
        begin = found.start()
    yield text[begin:], 0


def pairs_of(tokens: Iterable[str]) -> Pairs:
    """All characters that stand beside each other in tokens, as the file spells these."""
    return {pair for token in tokens for pair in pairwise(token.replace(" ", _SPACE))}


class ControlCuts:
    """Cuts in front of control tokens, which do not show: llama.cpp reads what is between two of
    them by itself.

    For the kinds whose time else grows with the length of a text only: a million characters without
    a control token take 0.2 s.
    """

    def __init__(self, controls: Sequence[str], *, strips: bool) -> None:
        """
        controls  tokens that are looked for before anything else is
        strips    whether one of these takes away the white space beside it
        """
        self.strips = strips
        controls = [name for name in controls if name]
        firsts = {name[0] for name in controls}
        self.ends = {name[-1] for name in controls}
        self._in_controls = {pair for name in controls for pair in pairwise(name)}
        # In these no other one can begin.
        plain = [re.escape(name) for name in controls if firsts.isdisjoint(name[1:])]
        self._control = re.compile("|".join(sorted(plain, key=len, reverse=True)) or r"(?!)")

    def parts(self, text: str) -> Iterator[TextPart]:
        """Parts of _PART characters or more, up to the next place to cut."""
        begin = 0
        while len(text) - begin > _PART:
            cut = self.before(text, begin + _PART, len(text))
            if cut > len(text):
                break
            yield text[begin:cut], 0
            begin = cut
        yield text[begin:], 0

    def before(self, text: str, first: int, last: int) -> int:
        """The first such place; behind the text where there is none."""
        for found in self._control.finditer(text, first, last):
            left = text[found.start() - 1]
            if (
                not (self.strips and left.isspace())
                and (left, found[0][0]) not in self._in_controls
            ):
                return found.start()
        return len(text) + 1


class SafeCuts:
    """Cuts for SentencePiece that do not show in the tokens.

    What is merged is always a token, so nothing is merged over a place whose two neighbours stand
    beside each other in no token. Each text gets a space in front that it does not have: a part
    begins one character early, and its tokens are cut off again. Where a part begins with a control
    token there is no such space.
    """

    def __init__(self, pairs: Pairs, controls: ControlCuts) -> None:
        """pairs: of neighbours in tokens, see `pairs_of`"""
        self._pairs = pairs
        self._controls = controls

    def parts(self, text: str) -> Iterator[TextPart]:
        """Parts of _PART characters or a little more; longer ones where there is no place to cut.

        One of MAX_UNCUT characters is cut in any case, which may show.
        """
        begin = early = 0
        while len(text) - begin > _PART:
            cut, next_early = self._cut(text, begin + _PART, begin + MAX_UNCUT)
            if cut >= len(text):
                break
            yield text[begin - early : cut], early
            begin, early = cut, next_early
        yield text[begin - early :], early

    def _cut(self, text: str, first: int, last: int) -> tuple[int, int]:
        """Where the next part begins, and how many characters early it is to begin."""
        found = self._controls.before(text, first, last)
        stop, pairs = min(found, last, len(text)), self._pairs
        for place in range(first, stop):
            left, right = text[place - 1], text[place]
            if left in self._controls.ends or (self._controls.strips and left.isspace()):
                continue
            if (_SPACE if left == " " else left, _SPACE if right == " " else right) not in pairs:
                return place, 1
        if found <= stop:
            return found, 0
        return stop, 1
