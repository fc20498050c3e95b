"""Functionary 3.2's calls: each part of an answer begins with its recipient; `all` is the user.

>>>all
I look.>>>sky
{"at": "Rome"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.chat.dialects.sample import KEY, NAME, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, row
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.source import Steps, TextSource

OPEN, _USER = ">>>", "all"
_CALL = re.compile(rf'>>>{NAME}\n\{{"{KEY}"')


class Functionary(Syntax, frozen=True):
    """All texts are fixed. The prompt ends with the first part's `>>>`."""

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks("functionary", opens=(OPEN,), divides=(OPEN,), markers=(OPEN,))

    def overlap(self, prompt: str) -> str:
        return OPEN if prompt.endswith(OPEN) else ""

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        line_end = lark.text("\n")
        call = lark.one_of(
            [row(lark.text(tool.name), line_end, lark.arguments(tool)) for tool in tools]
        )
        return CallGrammar("", lark.again(call, OPEN, one=one))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """One call, or the beginning of a text for the user."""
        yield from source.expect(OPEN)
        yield from source.space()
        came = yield from source.peek(len(_USER) + 1)
        if came.rstrip() == _USER:
            source.skip(len(_USER))
            return
        name, end = yield from source.until("\n", "{", fits=lambda text: calls.may_be(text.strip()))
        source.skip(-len(end))
        yield from source.space()
        yield from call_in_json(source, calls, name.strip())


def detect(sample: CallSample) -> Functionary | None:
    """By the text before a call."""
    return Functionary() if sample.search(_CALL) else None
