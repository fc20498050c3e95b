"""The tokens of a decision's prompt. What clients send is text in it: control tokens that it spells
are broken up before they are read."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from functools import cached_property
from typing import Any, cast

from worker.api.intake.facts import ModelFacts
from worker.api.intake.media_inputs import MediaInputs
from worker.engine.request import Medium

# Letters and digits, which no template escapes or trims, and nobody sends by accident.
MARK = uuid.uuid4().hex
_BREAK = f"{MARK}b"


class PromptTokens:
    """Of one decision. Made in a thread.

    param  the client's field, to name in errors
    """

    def __init__(self, facts: ModelFacts, media: MediaInputs, param: str) -> None:
        self._facts, self._media, self._param = facts, media, param

    def as_text(self, text: str) -> str:
        """The text with a break in each control token that it spells."""
        controls = self._controls
        place, parts = 0, list[str]()
        while controls is not None and (found := controls.search(text, place)):
            parts.append(text[place : found.start() + 1])
            place = found.start() + 1
        return _BREAK.join((*parts, text[place:]))

    def as_texts(self, value: Any) -> Any:
        """A JSON value with such breaks in all its texts, names of members too."""
        if isinstance(value, str):
            return self.as_text(value)
        if isinstance(value, list):
            return [self.as_texts(each) for each in cast("list[Any]", value)]
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value).items()
            return {self.as_text(name): self.as_texts(each) for name, each in members}
        return value

    def read(
        self, text: str, opening: Callable[[str], list[int]]
    ) -> tuple[list[int], tuple[Medium, ...]]:
        """Tokens and media of a text with breaks. opening: reads its first piece"""

        def tokens_of(part: str, *, add_special: bool) -> list[int]:
            first, *others = part.split(_BREAK)
            found = opening(first) if add_special else self.inside(first)
            for other in others:
                found = found + self.inside(other)
            return found

        if self._media.is_empty:
            return tokens_of(text, add_special=True), ()
        _, tokens, media = self._media.prompt(text, tokens_of, self._facts.max_length)
        return tokens, media

    def pieces(self, text: str) -> list[str]:
        """A text between its breaks."""
        return text.split(_BREAK)

    def inside(self, text: str) -> list[int]:
        """A text's tokens behind other text."""
        lead = self._lead
        found = self.tokenize(lead + text)
        return found[len(self.tokenize(lead)) :] if lead else found

    def tokenize(self, text: str) -> list[int]:
        """Its tokens, and no others in front."""
        return self._facts.vocab.tokenize(
            text,
            add_special=False,
            parse_special=True,
            param=self._param,
            budget=self._media.budget,
        )

    @cached_property
    def _lead(self) -> str:
        """What must stand before a text that would begin with a space otherwise."""
        first = self.tokenize("a")[:1]
        return "\n" if first and self._facts.vocab.pieces[first[0]].startswith(b" ") else ""

    @cached_property
    def _controls(self) -> re.Pattern[str] | None:
        vocab = self._facts.vocab
        names = {*vocab.controls, *map(vocab.name, vocab.end_tokens)} - {""}
        longest_first = sorted(names, key=len, reverse=True)
        return re.compile("|".join(map(re.escape, longest_first))) if names else None
