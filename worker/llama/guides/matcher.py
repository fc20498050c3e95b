"""Follows one text through a constraint, token by token."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from worker.grammar.constraint import Constraint
from worker.llama.guides.native import functions


class TokenMask:
    """One bit for each token of a vocabulary.

    words            uint32 [(vocab_size + 31) // 32]; bits behind the last token are 0
    address, nbytes  of the words; to ask numpy for them behind a decode, which empties the CPU's
                     caches, takes as long as a mask
    """

    def __init__(self, vocab_size: int) -> None:
        self.words = np.zeros((vocab_size + 31) // 32, np.uint32)
        self.address, self.nbytes = self.words.ctypes.data, self.words.nbytes


AHEAD = 1024  # bytes of what must come that are spelled at once, in so many tokens at most


class MatcherError(Exception):
    """The matcher has given up: a limit was reached, or a token came that may not come."""


class Matcher:
    """A text that a constraint describes, as far as it has been written. One thread uses it.

    The end of a text is one of the vocabulary's end tokens.
    """

    def __init__(self, handle: int) -> None:
        self.handle = handle
        # Behind a decode, which leaves nothing in the CPU's caches, it takes 6 µs to look up the
        # functions, and 10 to make a number that native code can read.
        self._library = functions()
        self._asked = ctypes.c_uint32()
        self._at = ctypes.addressof(self._asked)
        self._ahead = (ctypes.c_uint32 * AHEAD)()
        self._ahead_at = ctypes.addressof(self._ahead)
        self._free = weakref.finalize(self, self._library.free_matcher, handle)
        self._free.atexit = False  # the process ends anyway

    def copy(self) -> Matcher:
        """One that goes on from here by itself."""
        return Matcher(self._library.clone_matcher(self.handle))

    @property
    def error(self) -> str | None:
        """Why it has given up; None: it has not."""
        text = self._library.matcher_get_error(self.handle)
        return None if text is None else text.decode("utf-8", "replace")

    def allows(self, token: int) -> bool:
        """Whether the token may come next. Raises MatcherError."""
        self._asked.value = token
        found = self._library.matcher_validate_tokens(self.handle, self._at, 1)
        if found < 0:
            raise MatcherError(self.error)
        return found > 0

    def fill(self, mask: TokenMask) -> None:
        """Write which tokens may come next. Raises MatcherError."""
        if self._library.matcher_compute_mask_into(self.handle, mask.address, mask.nbytes):
            raise MatcherError(self.error)

    def forced_tokens(self) -> list[int]:
        """The tokens that must come next, as the tokenizer spells them.

        A last one that may become another with what follows is left out. Raises MatcherError.
        """
        found = self._library.matcher_compute_ff_tokens(self.handle, self._ahead_at, AHEAD)
        if found < 0:
            raise MatcherError(self.error)
        return self._ahead[:found] if found else []

    def accept(self, token: int) -> None:
        """The token was written. Raises MatcherError."""
        if self._library.matcher_consume_token(self.handle, token):
            raise MatcherError(self.error)

    @property
    def is_done(self) -> bool:
        """Whether nothing but the end may follow."""
        return self._library.matcher_is_stopped(self.handle)

    @property
    def may_end(self) -> bool:
        """Whether the end may come next."""
        return self._library.matcher_is_accepting(self.handle)

    def free(self) -> None:
        """Release what is native; safe to call again."""
        self._free()


class Watch:
    """The last bytes of a free text, as many as a trigger may begin in.

    starts_after ("<call>",)   look(b"a <ca") -> None, add; look(b"ll>{") -> b"{"
    """

    def __init__(self, constraint: Constraint) -> None:
        self._texts = [text.encode() for text in constraint.starts_after]
        self._tokens = frozenset(constraint.starts_after_tokens)
        self._room = max((len(text) for text in self._texts), default=1) - 1
        self._tail = b""

    def look(self, token: int, piece: bytes) -> bytes | None:
        """What follows the first trigger that this token would complete; None: it completes none.

        piece: the token's bytes
        """
        if token in self._tokens:
            return b""
        text = self._tail + piece
        ends = [at + len(t) for t in self._texts if (at := text.find(t)) >= 0]
        return text[min(ends) :] if ends else None

    def add(self, piece: bytes) -> None:
        """The token was written and completed no trigger."""
        self._tail = (self._tail + piece)[-self._room :] if self._room else b""

    def clear(self) -> None:
        self._tail = b""
