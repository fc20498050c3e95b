"""Which dialect a template speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from worker.chat.dialects import (
    functionary,
    gemma,
    keyed,
    mistral,
    muse,
    named,
    nested,
    pythonic,
    tagged,
    wrapped,
    xtml,
)
from worker.chat.dialects.harmony import CHANNEL, MESSAGE, Harmony
from worker.chat.dialects.sample import CallSample
from worker.chat.message import Call, Tool
from worker.chat.reader import ChatReader
from worker.chat.reading.answer import (
    AnswerGrammar,
    AnswerStart,
    CallGrammar,
    SyntaxMarks,
    ThoughtEnd,
    ThoughtTags,
)
from worker.chat.reading.call_grammar import Lark


class Dialect(Protocol):
    """How a family writes answers: `reading.answer.Syntax`, or messages with a header each."""

    @property
    def marks(self) -> SyntaxMarks: ...

    def past(self, calls: Sequence[Call]) -> str:
        """Calls of the past, for templates that show none."""
        ...

    def reader(
        self, tools: Sequence[Tool], start: AnswerStart, *, inline: bool, parallel: bool
    ) -> ChatReader:
        """Of one answer, as in `ChatFormat.reader`."""
        ...

    def thought_end(self, tags: ThoughtTags, *, is_open: bool) -> ThoughtEnd | None:
        """How a thought ends; None: the model has none."""
        ...

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar | None:
        """What calls of these tools look like, one of them or several; None: it cannot be held."""
        ...

    def answer(
        self, lark: Lark, start: AnswerStart, /, *, call: CallGrammar | None, body: str
    ) -> AnswerGrammar:
        """An answer that is a call or of this body, of which one may be missing."""
        ...


# What a template that knows no calls is asked to write.
PLAIN = wrapped.WrappedCalls("<tool_call>", "</tool_call>")


def dialect_of(sample: CallSample) -> Dialect | None:
    """By what the template shows of a call; None: it knows none."""
    if all(text in sample.source for text in (CHANNEL, MESSAGE, "functions.")):
        return Harmony()
    if made := muse.detect(sample):
        return made
    families = (gemma, mistral, functionary, pythonic, xtml, nested, tagged, keyed, named, wrapped)
    return next((made for family in families if (made := family.detect(sample))), None)
