"""Calls as JSON objects whose only name is the tool's: Apertus.

<|tools_prefix|>[{"sky": {"at": "Rome"}}, {"sea": {}}]<|tools_suffix|>
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from worker.chat.dialects.sample import KEY, MARK, NAME, VALUE, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, repeat, with_spaces
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.source import Steps, TextSource

_CALLS = re.compile(
    rf'(?P<open>{MARK})\s*\[\s*\{{\s*"{NAME}":\s*\{{\s*"{KEY}":\s*"{VALUE}"\s*\}}\s*\}}\s*\]'
    rf"\s*(?P<close>{MARK})"
)


class KeyedCalls(Syntax, frozen=True):
    """
    open   what stands before the list
    close  what stands after it
    """

    open: str
    close: str

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks(
            f"json by name after {self.open}", opens=(self.open,), markers=(self.open, self.close)
        )

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        call = lark.one_of([_call_grammar(lark, tool) for tool in tools])
        calls = repeat(call, '","', one=one)
        return CallGrammar(self.open, with_spaces('"["', calls, '"]"', lark.text(self.close)))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """The list; one object without its brackets will do."""
        yield from source.expect(self.open)
        yield from source.space()
        is_listed = (yield from source.one_of("[")) is not None
        while True:
            yield from source.space()
            yield from source.expect("{")
            yield from source.space()
            yield from source.expect('"')
            name, _ = yield from source.until('"', fits=calls.may_be)
            yield from source.space()
            yield from source.expect(":")
            yield from source.space()
            yield from call_in_json(source, calls, name)
            yield from source.space()
            yield from source.expect("}")
            calls.settle()
            yield from source.space()
            if not is_listed or (yield from source.expect(",", "]")) == "]":
                break
        calls.settle()
        yield from source.space()
        yield from source.close(self.close)


def _call_grammar(lark: Lark, tool: Tool) -> str:
    name = lark.text(json.dumps(tool.name, ensure_ascii=False))
    return with_spaces('"{"', name, '":"', lark.arguments(tool), '"}"')


def detect(sample: CallSample) -> KeyedCalls | None:
    """By what stands around the call's object."""
    match = sample.search(_CALLS)
    return KeyedCalls(match["open"], match["close"]) if match else None
