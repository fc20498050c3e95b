"""The prompts that came last, by the key that they came with: what a new one is compared with."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from worker.engine.request import Prompt
from worker.engine.sequence import Reuse

# Of all keys together; texts of prompts and answers, as token ids.
MOST_BYTES = 4 << 20
# Of one key. Each is compared with the newest one.
MOST_PROMPTS = 64
_OVERHEAD = 512  # bytes of one, besides what grows
_NOTHING = np.empty(0, np.int32)


class Turn(msgspec.Struct, frozen=True):
    """A message of a conversation.

    digest   the same where its client sent the same
    said     where the prompt's text has it
    thought  what is said of reasoning
    """

    role: str
    digest: int
    said: str
    thought: str = ""


class ChatParts(msgspec.Struct, frozen=True):
    """What a prompt was rendered from.

    given  digest of what the template got beside the messages, such as tools
    text   the prompt as the template made it
    """

    turns: tuple[Turn, ...]
    given: int
    text: str


class KnownPrompt:
    """One that came.

    prompt     without its tokens once it has ended
    tokens     int32 [n]: with the answer; none until it has ended
    digests    of its messages
    given      as in `ChatParts`
    admitted, ended  when it began to run, and no longer did; 0: not yet
    num_anew   as in `Reuse`
    nearest    the one before of which it has the most, until it has ended itself
    is_unkept  it is kept in cells only: its media take other positions than cells
    """

    __slots__ = (
        "admitted", "digests", "ended", "given", "is_unkept", "nearest", "num_anew", "num_prompt",
        "owner", "prompt", "tokens",
    )  # fmt: skip

    def __init__(self, owner: str, prompt: Prompt, parts: ChatParts | None) -> None:
        self.owner, self.prompt = owner, prompt
        self.num_prompt = len(prompt.tokens)
        self.tokens = _NOTHING
        self.digests = () if parts is None else tuple(turn.digest for turn in parts.turns)
        self.given = 0 if parts is None else parts.given
        self.admitted = self.ended = 0.0
        self.num_anew = 0
        self.nearest: KnownPrompt | None = None
        self.is_unkept = prompt.position(self.num_prompt) != self.num_prompt

    @property
    def nbytes(self) -> int:
        return _OVERHEAD + self.tokens.nbytes + 36 * len(self.digests)

    def tokens_at(self, then: float) -> np.ndarray:
        """What a sequence that was admitted then could find of it: int32 [n]."""
        if not self.ended:
            return np.frombuffer(array("i", self.prompt.tokens), np.int32)
        return self.tokens if self.ended <= then else self.tokens[: self.num_prompt]


class Likeness(msgspec.Struct, frozen=True):
    """How long a prompt is the same as one before.

    usable  first tokens that are computed in the same way, too
    common  first tokens that are the same; >= usable
    """

    other: KnownPrompt
    usable: int
    common: int


class RecentPrompts:
    """Bounded in bytes, in memory only. On the event loop."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_prompts: int = MOST_PROMPTS) -> None:
        self.num_bytes = 0
        self._most_bytes, self._most_prompts = most_bytes, most_prompts
        self._ended: dict[str, deque[KnownPrompt]] = {}  # by key, the oldest first
        self._sizes: dict[str, int] = {}
        self._live: dict[str, dict[KnownPrompt, None]] = {}

    def begin(self, owner: str, prompt: Prompt, parts: ChatParts | None) -> KnownPrompt:
        """One was accepted."""
        known = KnownPrompt(owner, prompt, parts)
        self._live.setdefault(owner, {})[known] = None
        return known

    def end(self, known: KnownPrompt, reuse: Reuse | None, admitted: float, now: float) -> None:
        """It runs no longer.

        reuse     None: its answer is not known
        admitted  0: it never ran
        """
        live = self._live[known.owner]
        del live[known]
        if not live:
            del self._live[known.owner]
        if not admitted:
            return
        tokens = known.tokens_at(now) if reuse is None else reuse.tokens.copy()
        known.num_anew = 0 if reuse is None else reuse.num_anew
        known.tokens, known.admitted, known.ended = tokens, admitted, now
        known.prompt = Prompt((), key=known.prompt.key, begin=known.prompt.begin)
        self._add(known)

    def _add(self, known: KnownPrompt) -> None:
        owner = known.owner
        ended = self._ended.setdefault(owner, deque())
        old, known.nearest = known.nearest, None
        if old is not None and old in ended and _goes_on(old, known):
            ended.remove(old)
            self._count(owner, -old.nbytes)
        ended.append(known)
        self._count(owner, known.nbytes)
        if len(ended) > self._most_prompts:
            self._count(owner, -ended.popleft().nbytes)
        while self.num_bytes > self._most_bytes:
            most = max(self._sizes, key=self._sizes.__getitem__)
            self._count(most, -self._ended[most].popleft().nbytes)
            if not self._ended[most]:
                del self._ended[most], self._sizes[most]

    def _count(self, owner: str, nbytes: int) -> None:
        self.num_bytes += nbytes
        self._sizes[owner] = self._sizes.get(owner, 0) + nbytes

    def alike(
        self, mine: KnownPrompt, tokens: np.ndarray, then: float, *, live: bool
    ) -> tuple[Likeness | None, Likeness | None]:
        """Of its key, the one of which the most is usable, and the one of which the most is the
        same; None: none begins so.

        tokens  int32 [n]: of the prompt
        then    when it was admitted
        live    also those that still run
        """
        usable: Likeness | None = None
        common: Likeness | None = None
        for other in self._before(mine.owner, then, live=live):
            if other is mine:
                continue
            known = other.tokens_at(then)[: len(tokens)]
            least = usable.usable if usable else 0
            if len(known) <= least or known[least] != tokens[least]:
                continue  # no more of it is the same, and most differ there
            count = num_common(known, tokens)
            alike = Likeness(other, mine.prompt.num_alike(other.prompt, count), count)
            if alike.usable > least:
                usable = alike
            if count > (common.common if common else 0):
                common = alike
        mine.nearest = usable.other if usable else None
        return usable, common

    def _before(self, owner: str, then: float, *, live: bool) -> Iterator[KnownPrompt]:
        """Those that run, and then the newest first."""
        if live:
            yield from self._live.get(owner, ())
        for each in reversed(self._ended.get(owner, ())):
            if each.admitted < then:
                yield each


def _goes_on(old: KnownPrompt, new: KnownPrompt) -> bool:
    """Whether all that is known of one is known of the other."""
    is_same = old.prompt == new.prompt and old.given == new.given
    return is_same and num_common(old.tokens, new.tokens) == len(old.tokens)


def num_common(left: np.ndarray, right: np.ndarray) -> int:
    """How many first tokens of two arrays are the same. Most differ early."""
    limit, at, step = min(len(left), len(right)), 0, 256
    while at < limit:
        stop = min(limit, at + step)
        differ = left[at:stop] != right[at:stop]
        if differ.any():
            return at + int(differ.argmax())
        at, step = stop, 4 * step
    return limit


_RUN = 16  # tokens that do not follow each other by accident


def rejoins(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether what differs in two arrays goes on in the same way later."""
    if len(left) <= _RUN or len(right) < _RUN:
        return False
    within, start = right.astype(np.int32, copy=False).tobytes(), 1
    while start + _RUN <= len(left):
        at = within.find(left[start : start + _RUN].tobytes())
        if at >= 0 and not at % left.itemsize:
            return True
        start *= 2
    return False


def digests_differ(known: KnownPrompt, turns: Sequence[Turn], place: int) -> bool:
    """Whether the message at a place was another one, as its client sent it."""
    return known.digests[place] != turns[place].digest
