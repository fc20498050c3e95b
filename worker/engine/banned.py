"""Phrases that an answer must not have.

What may still become one is held back. Where it does, the sequence goes back to the token before
its first one, and goes on without that token there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence as Ordered
from typing import NamedTuple

from worker.engine.output import Detokenizer
from worker.engine.request import Request, Resumption
from worker.engine.sequence import Delta, Mark

# So often one sequence goes back; then its phrases are allowed.
MOST_RETURNS = 64


class Phrases:
    """Finds phrases in a text, whatever the case of its letters."""

    def __init__(self, phrases: Ordered[str]) -> None:
        lowered = [lower(phrase) for phrase in phrases]
        self._any = re.compile("|".join(map(re.escape, lowered)))
        self._by_first: dict[str, list[str]] = {}
        for phrase in lowered:
            self._by_first.setdefault(phrase[0], []).append(phrase)

    def find(self, text: str) -> int | None:
        """Where the first one begins; None: there is none."""
        found = self._any.search(text)
        return None if found is None else found.start()

    def begin(self, text: str) -> int:
        """Where the longest end of the text begins that may become one; its length: none may."""
        for place, letter in enumerate(text):
            for phrase in self._by_first.get(letter, ()):
                if phrase.startswith(text[place:]):
                    return place
        return len(text)


def lower(text: str) -> str:
    """In small letters, of which there are as many."""
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


class HeldToken(NamedTuple):
    """A token whose text may be a phrase's.

    mark      how its sequence was before it
    text      the detokenizer before it
    begin     of its text in what is held
    is_part   whether it ends inside a character
    """

    token: int
    mark: Mark
    text: Detokenizer
    begin: int
    is_part: bool


class Guard:
    """Holds back the newest deltas of one sequence.

    request  its own
    is_cut   the part that is being written is to end, see `Engine.cut`
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self._phrases = Phrases(request.params.sampling.banned_strings)
        self._text = Detokenizer()
        self._held: list[HeldToken] = []
        self._deltas: list[Delta] = []
        self._tail = ""  # the text of what is held
        self._bans: dict[int, list[int]] = {}  # place in the sequence -> tokens
        self._num_returns = 0
        self.is_cut = False
        self._is_off = False

    def bans_at(self, place: int) -> bool:
        """Whether tokens are banned there."""
        return place in self._bans

    def feed(self, token: int, piece: bytes, mark: Mark) -> HeldToken | None:
        """One more token, before its sequence has it; the one to go back to, if there is one."""
        if self._is_off:
            return None
        before = self._text.copy()
        added = lower(self._text.feed(piece))
        held = HeldToken(token, mark, before, len(self._tail), self._text.is_held)
        self._held.append(held)
        self._tail += added
        begin = self._phrases.find(self._tail)
        return None if begin is None else self._return_to(begin)

    def _return_to(self, begin: int) -> HeldToken | None:
        """The first token of the phrase that begins there; None: no more is taken back."""
        number = max(n for n, held in enumerate(self._held) if held.begin <= begin)
        while number and self._held[number - 1].is_part and self._held[number].begin == begin:
            number -= 1
        first = self._held[number]
        place = first.mark.num_known
        banned = self._bans.get(place, [])
        if self._num_returns == MOST_RETURNS or first.token in banned:  # it had to come
            self.stop()
            return None
        self._num_returns += 1
        self._bans = {at: tokens for at, tokens in self._bans.items() if at < place}
        self._bans[place] = [*banned, first.token]
        del self._held[number:], self._deltas[number:]
        self._text, self._tail = first.text, self._tail[: first.begin]
        return first

    def release(self, delta: Delta) -> list[Delta]:
        """The deltas that are certain now. delta: of the newest token"""
        self._deltas.append(delta)
        count = len(self._deltas)
        if not self._is_off and not delta.is_last:
            begin = self._phrases.begin(self._tail)
            ends = [*(held.begin for held in self._held[1:]), len(self._tail)]
            certain = (
                number
                for number, (held, end) in enumerate(zip(self._held, ends, strict=True))
                if end > begin or (held.is_part and end == len(self._tail))
            )
            count = next(certain, count)
        released, self._deltas = self._deltas[:count], self._deltas[count:]
        kept = self._held[count:]
        cut = kept[0].begin if kept else len(self._tail)
        self._held = [held._replace(begin=held.begin - cut) for held in kept]
        self._tail = self._tail[cut:]
        return released

    def stop(self) -> None:
        """Allow all phrases from now on."""
        self._is_off = True
        self._bans = {}

    def resumption(self, tokens: Ordered[int], num_prompt: int) -> Resumption:
        """Where the sampler goes on. tokens: of the sequence"""
        written = tuple(map(int, tokens[num_prompt:]))
        return Resumption(written, tuple(self._bans.get(len(tokens), ())), self._num_returns)
