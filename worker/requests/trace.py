"""Why a prompt was read again: one word of a closed list, a sentence, and where it differs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from worker.engine.sequence import CacheSource, Reuse
from worker.requests.prompts import (
    ChatParts,
    KnownPrompt,
    RecentPrompts,
    digests_differ,
    rejoins,
)

Reason = Literal[
    "complete", "new_text", "first_time",
    "prompt_changed", "date_changed", "tools_changed", "answer_changed",
    "template_changed_earlier_turn", "other_media", "other_adapter",
    "evicted", "cache_off", "other_layout", "media_in_cells_only", "unreadable",
    "checkpoint_only_at", "window", "in_use", "too_short", "whole_pieces", "disk_blocks",
    "would_stall", "prompt_logprobs",
]  # fmt: skip

# {n}: tokens that the cache gave; {at}: the message at hand, or the prompt.
_WHY: dict[Reason, str] = {
    "complete": "All of it came from the cache; at most its last token was read again.",
    "new_text": "All that was known came from the cache; what follows is new.",
    "first_time": "No recent prompt of this key begins like this one.",
    "prompt_changed": "{at} changed, and what follows was there before.",
    "date_changed": "A date or a time changed in {at}.",
    "tools_changed": "The tools, or what else the template gets, changed.",
    "answer_changed": "{at} is not as the model wrote it, such as without its reasoning.",
    "template_changed_earlier_turn": "The chat template shows {at} in another way than before.",
    "other_media": "An image or audio is another one, in {at}.",
    "other_adapter": "The same text was computed with other adapters.",
    "evicted": "It was known, and left the cache to make room.",
    "cache_off": "It was known, and left its cells; with --cache-ram 0 nothing else holds it.",
    "other_layout": "The KV cache was made anew since; with --cache-ram 0 nothing else holds it.",
    "media_in_cells_only": "With this model's images or audio it is cached in cells only, and "
    "others took these.",
    "unreadable": "Its state could not be brought back.",
    "checkpoint_only_at": "This model continues from checkpoints, the last one after {n} tokens.",
    "window": "The sliding window has left these tokens, and there is no checkpoint before them.",
    "in_use": "A running request has these tokens, and is past the place where this one differs.",
    "too_short": "For so few tokens no checkpoint is made.",
    "whole_pieces": "A lone request reads at least 64 tokens, from a whole block of 16.",
    "disk_blocks": "On disk prompts are found in blocks of 64 tokens.",
    "would_stall": "To bring it back would have stalled the running streams.",
    "prompt_logprobs": "The logprobs of the prompt were asked for, so all of it was computed.",
}
_WITHHELD: dict[str, Reason] = {
    "checkpoint": "checkpoint_only_at",
    "window": "window",
    "in_use": "in_use",
    "too_short": "too_short",
    "stall": "would_stall",
    "pieces": "whole_pieces",
    "scored": "prompt_logprobs",
    "unreadable": "unreadable",
}
# They cost few tokens: what the prompt itself costs counts if that is more.
_SMALL = frozenset({"whole_pieces", "disk_blocks", "checkpoint_only_at", "too_short", "window"})
_PLAIN = frozenset({"new_text", "first_time"})
_FEW = 16  # tokens, as those with which all prompts of a template begin
_ENDING = 4  # tokens behind an answer that its client never saw, such as a stop text
_DISK_BLOCK = 64

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_CLOCK = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]\d{1,2}:\d\d(?::\d\d)?(?:\.\d+)?)?"
    r"|\d{1,2}[-/]\d{1,2}[-/]\d{2,4}|\d{1,2}\.\d{1,2}\.\d{4}"
    r"|\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?:\s?[AaPp][Mm])?"
    rf"|\d{{1,2}}(?:st|nd|rd|th)?[ -]{_MONTH}(?:[ -]\d{{2,4}})?"
    rf"|{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s\d{{4}})?|{_MONTH}\s\d{{4}}"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day|\b1[4-9]\d{8}(?:\d{3})?\b"
)
_BEFORE, _SHOWN = 12, 40  # characters
_SYSTEM = ("system", "developer")


class PromptDifference(msgspec.Struct, frozen=True):
    """The first token that is another one than in the most alike of the key's recent prompts.

    earlier, now  the texts there, with some characters before; null where no such prompt is known
    message, role of the message that holds it, counted from 0 with the system prompt
    """

    position: int
    earlier: str | None = None
    now: str | None = None
    message: int | None = None
    role: str | None = None


class CacheTrace(msgspec.Struct, frozen=True):
    """What the cache gave of a prompt, and why no more; of several prompts the one that cost most.

    known_tokens  of its beginning, that the key's recent prompts and the cache have
    source        where the last of the cached tokens lay: cells, memory or disk
    prompt        its number
    """

    reason: Reason
    why: str
    prompt_tokens: int
    cached_tokens: int
    known_tokens: int
    source: CacheSource | None = None
    difference: PromptDifference | None = None
    prompt: int = 0


class TracedPrompt:
    """One prompt, as it is compared with those before.

    spelled  token id -> bytes, control tokens spelled out
    """

    def __init__(
        self,
        known: KnownPrompt,
        reuse: Reuse,
        cached: int,
        parts: ChatParts | None,
        spelled: Sequence[bytes] | Mapping[int, bytes],
    ) -> None:
        self._known, self._reuse, self._cached = known, reuse, cached
        self._parts, self._spelled = parts, spelled
        self._tokens = reuse.tokens[: known.num_prompt]

    def trace(self, recent: RecentPrompts, admitted: float, number: int = 0) -> CacheTrace:
        """Against those that ran before it was admitted."""
        cached, most = self._cached, len(self._tokens) - 1
        live = self._reuse.withheld[1] == "in_use"
        usable, common = recent.alike(self._known, self._tokens, admitted, live=live)
        known = min(usable.usable, most) if usable else 0
        reason: Reason = "complete"
        found: PromptDifference | None = None
        if cached < most:
            reason, found = "first_time", None
            if cached > known:
                reason = "new_text" if cached >= _FEW else "first_time"
                found = PromptDifference(cached)
            elif usable is not None:
                old = usable.other.tokens_at(admitted)
                reason, found = self._change(usable.other, old, usable.usable)
            num_same = min(common.common, most) if common else 0
            lost = most - max(known, cached)
            if num_same > max(known, cached):  # the rest of it is said by the adapters
                reason, lost = "other_adapter", num_same
            if usable is not None and known > cached:
                held = self._hindrance(usable.other, known)
                few = held in _SMALL or known - cached < _FEW
                if known - cached > lost or (reason in _PLAIN and not few):
                    reason = held
        at = "the prompt"
        if found is not None and found.message is not None:
            at = f"message {found.message} ({found.role})"
        why = _WHY[reason].format(n=f"{cached:,}", at=at)
        why = why[0].upper() + why[1:]
        length, known = len(self._tokens), max(known, cached)
        source = self._reuse.source
        return CacheTrace(reason, why, length, cached, known, source, found, number)

    def _hindrance(self, other: KnownPrompt, known: int) -> Reason:
        """Why it did not go on from all that was known."""
        reuse, cached = self._reuse, self._cached
        count, word = reuse.withheld
        is_told = word != "in_use" or not other.ended  # who else runs is nobody's affair
        if is_told and count - cached > max(0, known - count):
            return _WITHHELD[word]
        if other.is_unkept:
            return "media_in_cells_only"
        if not reuse.keeps:
            return "other_layout" if other.num_anew != reuse.num_anew else "cache_off"
        if reuse.source == "disk" and known - cached < _DISK_BLOCK:
            return "disk_blocks"
        return "evicted"

    def _change(
        self, other: KnownPrompt, old: np.ndarray, at: int
    ) -> tuple[Reason, PromptDifference | None]:
        """What is another text than before, where the same tokens end."""
        new = self._tokens
        if at >= min(len(new), len(old)):
            return "new_text", None
        place = self._message_at(at)
        role = None if place is None or self._parts is None else self._parts.turns[place].role
        found = PromptDifference(at, self._show(old, at), self._show(new, at), place, role)
        if at >= len(old) - _ENDING:
            return "new_text", found
        if old[at] < 0 and new[at] < 0:
            return "other_media", found
        is_back = rejoins(old[at:], new[at:])
        if self._is_clock(old, at) and (is_back or place == 0 or role in _SYSTEM):
            return "date_changed", found
        if place is not None and self._parts is not None:
            reason = self._changed_message(other, old, at, place, self._parts)
            if reason is not None:
                return reason, found
        if is_back:
            return "prompt_changed", found
        return "first_time" if at < _FEW else "new_text", found

    def _changed_message(
        self, other: KnownPrompt, old: np.ndarray, at: int, place: int, parts: ChatParts
    ) -> Reason | None:
        """The same message in other words; None: it is another message."""
        turn, num_before = parts.turns[place], len(other.digests)
        if place < num_before:
            if digests_differ(other, parts.turns, place):
                return None
            return (
                "tools_changed" if other.given != parts.given else "template_changed_earlier_turn"
            )
        if place > num_before or not num_before or turn.role != "assistant":
            return None
        thought = turn.thought.strip()[:_SHOWN]
        dropped = bool(thought) and thought in self._spell(old[at:]) and thought not in parts.text
        return "template_changed_earlier_turn" if dropped else "answer_changed"

    def _message_at(self, at: int) -> int | None:
        """The number of the message whose text holds a token, or comes next."""
        parts = self._parts
        if parts is None or not parts.turns:
            return None
        offset = self._offset(at, parts.text)
        cursor = 0
        for place, turn in enumerate(parts.turns):
            said = turn.said.strip()
            begin = parts.text.find(said[:64], cursor) if said else -1
            if begin < 0:
                continue
            cursor = begin + (len(said) if parts.text.startswith(said, begin) else 64)
            if offset is not None and cursor > offset:
                return place
        return None

    def _offset(self, at: int, text: str) -> int | None:
        """Where in the prompt's text a token begins, about."""
        tokens = self._tokens
        for first in (max(0, at - 12), at):
            before = self._spell(tokens[first:at]).lstrip() if first < at else ""
            shown = (before + self._spell(tokens[at : at + 12])).rstrip()
            guess, begin = len(text) * at // len(tokens), -1
            while shown and (found := text.find(shown, begin + 1)) >= 0:
                if begin >= 0 and abs(found - guess) > abs(begin - guess):
                    break
                begin = found
            if begin >= 0:
                return begin + len(before)
        return None

    def _is_clock(self, old: np.ndarray, at: int) -> bool:
        """Whether a date or a time stands at the difference, on both sides."""
        before = self._spell(self._tokens[max(0, at - 16) : at])
        for tokens in (old, self._tokens):
            text, place = before + self._spell(tokens[at : at + 16]), len(before)
            if not any(each.start() <= place < each.end() for each in _CLOCK.finditer(text)):
                return False
        return True

    def _show(self, tokens: np.ndarray, at: int) -> str:
        before = self._spell(tokens[max(0, at - _BEFORE) : at])[-_BEFORE:]
        return (before + self._spell(tokens[at : at + _SHOWN]))[:_SHOWN]

    def _spell(self, tokens: np.ndarray) -> str:
        spelled = self._spelled
        ids: list[int] = tokens.tolist()
        return b"".join([spelled[each] for each in ids if each >= 0]).decode("utf-8", "replace")
