"""How a model thinks: between which texts, and which of the template's variables say so."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec

from worker.chat.dialects.sample import MARK
from worker.chat.message import Message
from worker.chat.probe import TemplateProbe
from worker.chat.reading.answer import AnswerStart, ThoughtTags

# A client's words, as a text, a number or a truth.
EffortWord = str | float | bool | None

_NO = frozenset({"false", "0", "0.0", "off", "none", "no", "disabled", "disable", "n", "f"})
_YES = frozenset({"true", "1", "1.0", "on", "yes", "enabled", "enable", "y", "t"})

NO_EFFORT = ("none", "minimal")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
# Variables of templates -> (value that switches thoughts on, value that switches them off)
_SWITCHES: dict[str, tuple[Any, Any]] = {
    "enable_thinking": (True, False),
    "thinking": (True, False),
    "thinking_mode": ("enabled", "disabled"),
    "skip_thinking": (False, True),
    "thinking_budget": (-1, 0),
}
# Where a template does not show thoughts, it may still name their tags.
_KNOWN = (
    ThoughtTags("<think>", "</think>"),
    ThoughtTags("[THINK]", "[/THINK]"),
    ThoughtTags("<thinking>", "</thinking>"),
    ThoughtTags("Here are my reasoning steps:\n", "[BEGIN FINAL RESPONSE]"),
)
# A tag, or a name between two control tokens.
_OPEN = re.compile(rf"(<\|channel>thought\n|<\|open\|>\w+{MARK}|{MARK})\s*\Z")
_CLOSE = re.compile(rf"\A\s*(<\|close\|>\w+{MARK}|{MARK})")
# llama.cpp's own templates close a thought so: its server always says whether the model thinks.
_SUPPOSED = re.compile(r"(?<!and )not enable_thinking\s*-?%}")
_ASKED = re.compile(r"enable_thinking\s*(?:is\b|\|)")
_IS_THOUGHT = re.compile("think|thought|reason", re.IGNORECASE)


def effort_of(*given: EffortWord) -> tuple[bool | None, str | None]:
    """(whether it thinks at all, how much), by the first that says something; None: the template's
    own way. A word for no means no, in any case of letters; templates know `none`."""
    for value in given:
        word = "" if value is None else str(value).strip().lower()
        if word in _NO:
            return False, word if word == "none" else None
        if word in _YES:
            return True, None
        if word:
            return None, word
    return None, None


class Thinking(msgspec.Struct, frozen=True, kw_only=True):
    """How the model is to think.

    is_on   whether at all; None: as the template does by itself
    effort  none, minimal, low, medium, high, ...; as far as the template knows it
    budget  tokens of thought at most
    inline  thoughts stay in the content, with their tags
    """

    is_on: bool | None = None
    effort: str | None = None
    budget: int | None = None
    inline: bool = False


def switch_thinking(variables: Mapping[str, Any]) -> dict[str, Any]:
    """A template's variables; of those that switch thoughts a word for no is no: in a template each
    text is true, and not each template knows `none`."""
    found = dict(variables)
    if effort_of(found.get("reasoning_effort"))[0] is False:
        del found["reasoning_effort"]
    for name, (on, _) in _SWITCHES.items():
        if isinstance(on, bool) and name in found:
            is_on = effort_of(found[name])[0]
            found[name] = found[name] if is_on is None else is_on
    return found


class ThoughtHabits:
    """What a template does about thoughts.

    tags  the texts around them; empty ones: it knows none
    """

    def __init__(self, probe: TemplateProbe) -> None:
        self._probe = probe
        self.tags = _tags(probe)

    def variables(self, thinking: Thinking) -> dict[str, Any]:
        """What the template gets, of what makes a difference to it."""
        found: dict[str, Any] = {}
        effort, is_on = thinking.effort, thinking.is_on
        if effort is not None and is_on is None:
            is_on = effort not in NO_EFFORT
        if is_on is None and self._is_supposed:
            found["enable_thinking"] = True
        if is_on is not None:
            found |= {name: _SWITCHES[name][not is_on] for name in self._switches}
        if effort is not None and (known := self._efforts):
            wanted = _EFFORTS.index(effort) if effort in _EFFORTS else len(_EFFORTS)
            nearest = min(known, key=lambda name: abs(_EFFORTS.index(name) - wanted))
            found["reasoning_effort"] = effort if effort in known else nearest
        return found

    def start(self, prompt: str, thinking: Thinking) -> AnswerStart:
        """Where an answer to the prompt begins."""
        tags, text = self.tags, prompt.rstrip()
        tag = tags.open.rstrip()
        is_off = thinking.is_on is False or thinking.effort in NO_EFFORT
        return AnswerStart(
            prompt=prompt,
            tags=tags,
            inside=bool(tags.close) and self.is_inside(prompt),
            opened=tag + prompt[len(text) :] if tag and text.endswith(tag) else "",
            thinks=bool(tags.close) and not is_off and not text.endswith(tags.close),
        )

    def is_inside(self, prompt: str) -> bool:
        """Whether an answer to the prompt begins inside a thought."""
        tags = self.tags
        if not tags.close:
            return False
        before, header, turn = prompt.rpartition(self._header) if self._header else (prompt, "", "")
        if not header:
            return (before or turn).rstrip().endswith(tags.open.rstrip())
        return turn.rfind(tags.open.rstrip()) > turn.rfind(tags.close)

    @cached_property
    def _header(self) -> str:
        """With what the assistant's turns begin, before a thought's tags."""
        header = self._probe.header
        places = [header.find(tag.rstrip()) for tag in (self.tags.open, self.tags.close) if tag]
        return header[: min((place for place in places if place > 0), default=len(header))]

    @cached_property
    def _switches(self) -> tuple[str, ...]:
        return tuple(
            name
            for name, (on, off) in _SWITCHES.items()
            if _differ(self._probe, {name: on}, {name: off})
        )

    @cached_property
    def _is_supposed(self) -> bool:
        """Whether the template takes it for granted that it is told that the model thinks."""
        source = self._probe.sample.source
        return bool(_SUPPOSED.search(source)) and not _ASKED.search(source)

    @cached_property
    def _efforts(self) -> tuple[str, ...]:
        """Those that the template takes; none where they make no difference to it."""
        texts = {
            effort: text
            for effort in _EFFORTS
            if (text := self._probe.opening(reasoning_effort=effort))
        }
        return tuple(texts) if len(set(texts.values())) > 1 else ()


def _differ(probe: TemplateProbe, *choices: dict[str, Any]) -> bool:
    """Whether the template tells these variables apart; a refusal is no difference."""
    return len({text for choice in choices if (text := probe.opening(**choice))}) > 1


def _tags(probe: TemplateProbe) -> ThoughtTags:
    if probe.around_thought is not None:
        before, after = probe.around_thought
        opened, closed = _OPEN.search(before), _CLOSE.search(after)
        if opened and closed and _IS_THOUGHT.search(opened[1]):
            return ThoughtTags(opened[1], closed[1])
    source = probe.sample.source
    return next((tags for tags in _KNOWN if tags.close in source), ThoughtTags())


def without_mentions(messages: Sequence[Message], tags: ThoughtTags) -> list[Message]:
    """The messages with a space in each tag that an answer only speaks of.

    Templates leave out what stands before the tag that ends a thought. It ends one where a thought
    was begun before it, or where it stands in a line of its own.
    """
    alone = re.compile(rf"^\s*{re.escape(tags.close.strip())}\s*$", re.MULTILINE)
    return [_mend(message, tags, alone) for message in messages]


def _mend(message: Message, tags: ThoughtTags, alone: re.Pattern[str]) -> Message:
    content, close = message.content or "", tags.close.strip()
    if message.role != "assistant" or close not in content:
        return message
    if tags.open.strip() in content.partition(close)[0] or alone.search(content):
        return message
    return msgspec.structs.replace(
        message, content=content.replace(close, f"{close[:-1]} {close[-1]}")
    )
