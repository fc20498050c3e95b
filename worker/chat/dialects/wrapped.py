"""Calls as JSON objects between two texts, or bare: Hermes, Qwen, Granite, Llama, Command R.

<tool_call>{"name": "sky", "arguments": {"at": "Rome"}}</tool_call>
<|tool_call|>[{"name": "sky", "arguments": {}}, {"name": "sea", "arguments": {}}]
{"name": "sky", "parameters": {"at": "Rome"}}
[{"id": "1", "name": "sky", "parameters": {}}, {"type": "function", "function": {...}}]
Action:
```json
[{"tool_name": "sky", "parameters": {"at": "Rome"}}]
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import msgspec

from worker.chat.dialects.sample import MARK, NAME, CallSample
from worker.chat.message import Call, Tool
from worker.chat.reader import ChatReader
from worker.chat.reading.answer import (
    BARE,
    AnswerStart,
    CallGrammar,
    Syntax,
    SyntaxMarks,
    call_json,
)
from worker.chat.reading.bare_call import BareCallReader
from worker.chat.reading.call_grammar import Lark, repeat, with_spaces
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json, json_string, json_value, whole_call
from worker.chat.reading.source import DamagedError, Steps, TextSource

NAMES = ("name", "tool_name", "function")
ARGUMENTS = ("arguments", "parameters")


def call_objects(
    source: TextSource, calls: Calls, closes: Sequence[str] = (), *, is_strict: bool = False
) -> Steps[None]:
    """One or more calls, and the text that closes them where it stands there.

    is_strict: what has no arguments is no call. Raises DamagedError.
    """
    yield from source.space()
    listed = yield from source.one_of("[")
    while True:
        yield from source.space()
        yield from _call_object(source, calls, is_strict=is_strict)
        calls.settle()
        yield from source.space()
        if listed:
            if (yield from source.expect(",", "]")) == "]":
                break
        else:
            yield from source.one_of(";", ",")
            yield from source.space()
            if (yield from source.peek()) != "{":
                break
    yield from source.space()
    yield from source.close(*closes)


def _call_object(source: TextSource, calls: Calls, *, is_strict: bool) -> Steps[None]:
    yield from source.expect("{")
    name = call_id = kept = ""
    is_told = False
    while True:
        yield from source.space()
        if (yield from source.one_of("}")) is not None:
            break
        key = yield from json_string(source)
        yield from source.space()
        yield from source.expect(":")
        yield from source.space()
        first = yield from source.peek()
        if key == "function" and first == "{" and not is_told:
            yield from _call_object(source, calls, is_strict=is_strict)
            is_told = True
        elif key in NAMES and first == '"' and not name:
            source.skip(1)
            name, _ = yield from source.until('"', fits=calls.may_be)
            calls.check(name)
        elif key in ARGUMENTS and name and first == "{" and not is_told:
            yield from call_in_json(source, calls, name, call_id)
            is_told = True
        elif key in ARGUMENTS:
            kept = yield from json_value(source)
        elif key == "id" and first == '"':
            call_id = yield from json_string(source)
        else:
            yield from json_value(source)
        yield from source.space()
        if (yield from source.expect(",", "}")) == "}":
            break
    if is_told:
        return
    if not name or (is_strict and not kept):
        raise DamagedError
    whole_call(calls, name, kept or "{}", call_id)


_OTHER = '/"[A-Za-z0-9]{1,9}"/'  # what stands in other fields: ids
_PYTHON_TAG = "<|python_tag|>"
# Models with this mark are known to leave it out, and so are those that were told of it in words.
_HERMES = "<tool_call>"
_OBJECT = re.compile(
    rf"(?P<open>{MARK}\s*function call{MARK}|{MARK}|\w+:\s*```json|\w+(?=\[)|)\s*(?P<list>\[?)\s*"
    rf'\{{\s*(?:"(?P<before>\w+)":\s*"[^"]*",)?\s*'
    rf'"(?P<name>name|tool_name)":\s*"{NAME}",\s*"(?P<arguments>arguments|parameters)":\s*'
    rf'\{{[^}}]*\}}(?:,\s*"(?P<after>\w+)":\s*"[^"]*")?\s*\}}\s*\]?\s*(?P<close>(?:{MARK}|```)?)'
)
# Texts with which templates tell the model how to call, where they show no call themselves.
_TOLD = ("<|tool_call|>", "<tool_calls>", "<tool_call>")


class CallFields(msgspec.Struct, frozen=True):
    """The names of a call's fields, of those before and after the others too; empty: none."""

    name: str = "name"
    arguments: str = "arguments"
    before: str = ""
    after: str = ""


class WrappedCalls(Syntax, frozen=True):
    """
    open     what stands before; `{` for bare ones
    close    what stands after; empty: nothing
    is_list  they stand in a JSON list
    """

    open: str
    close: str
    is_list: bool = False
    fields: CallFields = CallFields()

    @property
    def marks(self) -> SyntaxMarks:
        opens = (BARE, _PYTHON_TAG) if self.open == BARE else (self.open,)
        name = f"json after {' '.join(self.open.split())}"
        return SyntaxMarks(name, opens=opens, markers=(*opens, self.close))

    def past(self, calls: Sequence[Call]) -> str:
        if self.is_list:
            return f"{self.open}[{', '.join(map(call_json, calls))}]{self.close}"
        return "\n".join(f"{self.open}{call_json(call)}{self.close}" for call in calls)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        call = lark.one_of([call_object(lark, tool, self.fields) for tool in tools])
        close = lark.text(self.close)
        if self.open == BARE:
            return CallGrammar("", call)
        if self.is_list:
            rest = with_spaces('"["', repeat(call, '","', one=one), '"]"', close)
        else:
            rest = lark.again(with_spaces(call, close), self.open, one=one)
        return CallGrammar(self.open, rest)

    def reader(
        self, tools: Sequence[Tool], start: AnswerStart, *, inline: bool, parallel: bool
    ) -> ChatReader:
        made = super().reader(tools, start, inline=inline, parallel=parallel)
        is_hermes = self.open.strip() == _HERMES and self.fields == CallFields()
        return BareCallReader(made, tools) if tools and is_hermes else made

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        if (yield from source.peek()) != BARE:
            yield from source.expect(*self.marks.opens)
        closes = (self.close,) if self.close else ()
        yield from call_objects(source, calls, closes, is_strict=self.open == BARE)


def call_object(lark: Lark, tool: Tool, fields: CallFields) -> str:
    """A call's object, from its brace to its brace."""

    def pair(name: str, value: str) -> str:
        return with_spaces(lark.text(json.dumps(name)), '":"', value)

    parts = [pair(fields.before, _OTHER), '","'] if fields.before else []
    name = lark.text(json.dumps(tool.name, ensure_ascii=False))
    parts += [pair(fields.name, name), '","', pair(fields.arguments, lark.arguments(tool))]
    parts += ['","', pair(fields.after, _OTHER)] if fields.after else []
    return with_spaces('"{"', *parts, '"}"')


def detect(sample: CallSample) -> WrappedCalls | None:
    """By what stands around the object of a call."""
    if match := sample.search(_OBJECT):
        return WrappedCalls(
            open=match["open"] or BARE,
            close=match["close"] if match["open"] else "",
            is_list=bool(match["list"]),
            fields=CallFields(
                match["name"], match["arguments"], match["before"] or "", match["after"] or ""
            ),
        )
    told = next((text for text in _TOLD if text in sample.source), None)
    if sample.call or told is None:
        return None
    close = told.replace("<", "</")
    if close in sample.source:
        return WrappedCalls(told, close, is_list=f"{told}[" in sample.source)
    return WrappedCalls(told, "", is_list=True)
