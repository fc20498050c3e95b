"""What a sampled token becomes for its reader: text, its end at a stop string, ln p."""

from __future__ import annotations

import codecs

import msgspec
import numpy as np

from worker.engine.likeliest import likeliest, log_sum


class Detokenizer:
    """Turns one sequence's token bytes into text, holding back an unfinished character.

    A byte that can never become valid UTF-8 comes out as U+FFFD at once, so it silences nothing.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def copy(self) -> Detokenizer:
        made = Detokenizer()
        made._held = self._held
        return made

    def feed(self, piece: bytes) -> str:
        """The text that `piece` completes; empty while a character is unfinished."""
        piece = self._held + piece
        text, used = codecs.utf_8_decode(piece, "replace", False)
        self._held = piece[used:]
        return text

    @property
    def is_held(self) -> bool:
        """Whether a character is unfinished."""
        return bool(self._held)

    def flush(self) -> str:
        """What is still held back, as U+FFFD; the last call."""
        return self._held.decode(errors="replace")


class StopMatcher:
    """Ends a text before the first stop string that appears in it.

    Text that may be the beginning of a stop string is held back until it is decided:

        stops ("END",)   feed("abc E") -> "abc ", feed("N") -> "", feed("X") -> "ENX"

    found     the stop string that ended the text; None: none did
    num_fed   characters so far
    num_safe  of them, that are safe to show
    """

    __slots__ = ("_firsts", "_held", "_stops", "found", "num_fed", "num_safe")

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._firsts: frozenset[str] = frozenset()
        if stops:
            self._firsts = frozenset(stop[0] for stop in stops)
        self._held: str = ""
        self.found: str | None = None
        self.num_fed = 0
        self.num_safe = 0

    def feed(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether a stop string was found)."""
        self.num_fed += len(text)
        if not self._stops:
            self.num_safe += len(text)
            return text, False
        safe, is_found = self._match(text)
        self.num_safe += len(safe)
        return safe, is_found

    def _match(self, text: str) -> tuple[str, bool]:
        text = self._held + text
        if self._firsts.isdisjoint(text):  # of hundreds of stops none begins here
            self._held = ""
            return text, False
        found = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            self._held = ""
            at, self.found = min(found)
            return text[:at], True
        safe = min(self._start_of_prefix(text, stop) for stop in self._stops)
        self._held = text[safe:]
        return text[:safe], False

    def flush(self) -> str:
        """What is still held back, when the sequence ended for another reason."""
        held, self._held = self._held, ""
        self.num_safe += len(held)
        return held

    @staticmethod
    def _start_of_prefix(text: str, stop: str) -> int:
        """Where the longest end of `text` begins that is a beginning of `stop`."""
        at = text.find(stop[0], max(0, len(text) - len(stop) + 1))
        while at >= 0:
            if stop.startswith(text[at:]):
                return at
            at = text.find(stop[0], at + 1)
        return len(text)


class LineLimit:
    """Ends a text before the first line that begins with fewer than `indent` spaces or tabs.

    A line's end is held back until it is known how the next line begins. Empty lines say nothing.
    """

    __slots__ = ("_held", "_indent")

    def __init__(self, indent: int) -> None:
        self._indent = indent
        self._held = ""

    def feed(self, text: str) -> tuple[str, bool]:
        """(text that is safe to show, whether it ends here)."""
        text, self._held = self._held + text, ""
        end = text.find("\n")
        while end >= 0:
            line = text[end + 1 :]
            begun = line.lstrip(" \t")
            if not begun:
                self._held = text[end:]
                return text[:end], False
            if begun[0] != "\n" and len(line) - len(begun) < self._indent:
                return text[:end], True
            end = text.find("\n", end + 1)
        return text, False

    def flush(self) -> str:
        """What is still held back, when the sequence ended for another reason."""
        held, self._held = self._held, ""
        return held


class TokenLogprob(msgspec.Struct, frozen=True, gc=False):
    """ln p of one token under the model's own distribution, and the likeliest alternatives.

    top: (token id, ln p), likeliest first; holds the token itself only if it is among them
    rank: of the token among all, from 1 on; 0: it was not asked for
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    rank: int = 0


def token_logprob(logits: np.ndarray, token: int, top: int, *, ranks: bool = False) -> TokenLogprob:
    """ln softmax(logits)[token] and the `top` likeliest; logits float32 [vocab_size].

    Good to 1e-6 of the sum's logarithm. All values come from the same sum, so that a token that is
    the likeliest equals the best of `top` bit for bit.
    """
    total = log_sum(logits)
    best = likeliest(logits, top) if top > 0 else np.empty(0, np.intp)
    best = best[np.lexsort((best, -logits[best]))][:top]
    pairs = tuple((int(i), float(logits[i]) - total) for i in best)
    rank = 0
    if ranks:  # of equals those with a lower id come first, as in `top`
        logit = logits[token]
        before = int(np.count_nonzero(logits[:token] == logit))
        rank = 1 + int(np.count_nonzero(logits > logit)) + before
    return TokenLogprob(token, float(logits[token]) - total, pairs, rank)
