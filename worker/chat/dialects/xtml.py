"""Kimi K3's answers, all of whose parts stand between tags of control tokens.

<|open|>think<|sep|>Rain?<|close|>think<|sep|><|open|>response<|sep|>I look.<|close|>response<|sep|>
<|open|>tools<|sep|><|open|>call tool="sky" index="1"<|sep|><|open|>argument key="at"
type="string"<|sep|>Rome<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

from worker.chat.dialects.sample import NAME, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import (
    Lark,
    properties_of,
    repeat,
    row,
    string_choices,
    with_spaces,
)
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.parameters import Parameters, types_of
from worker.chat.reading.source import Steps, TextSource

_OPEN, _CLOSE, _SEP = "<|open|>", "<|close|>", "<|sep|>"
_CALL = f'{_OPEN}call tool="'
_TOOLS, _ANSWER = f"{_OPEN}tools{_SEP}", f"{_OPEN}response{_SEP}"
_ARGUMENT, _JSON = f'{_OPEN}argument key="', f"{_OPEN}json"
_ARGUMENT_END, _JSON_END = f"{_CLOSE}argument{_SEP}", f"{_CLOSE}json{_SEP}"
_CALL_END, _TOOLS_END = f"{_CLOSE}call{_SEP}", f"{_CLOSE}tools{_SEP}"
_SILENT = (_ANSWER, *(f"{_CLOSE}{part}{_SEP}" for part in ("response", "message")), _TOOLS_END)
_TYPE = re.compile(r'type="(\w+)"')
_MAX_TAG = 512


class Xtml(Syntax, frozen=True):
    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks(
            "xtml",
            opens=(_TOOLS, _CALL),
            silent=_SILENT,
            answers=(_ANSWER,),
            markers=(_OPEN, _CLOSE, _SEP),
        )

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        call = lark.one_of([_call_grammar(lark, tool) for tool in tools])
        return CallGrammar(_TOOLS, with_spaces(repeat(call, one=one), lark.text(_TOOLS_END)))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        yield from source.one_of(_TOOLS)
        yield from source.space()
        yield from source.expect(_CALL)
        while True:
            yield from _call(source, calls)
            yield from source.space()
            if (yield from source.one_of(_CALL)) is None:
                break
        yield from source.close(_TOOLS_END)


def _call(source: TextSource, calls: Calls) -> Steps[None]:
    name, _ = yield from source.until('"', fits=lambda text: calls.may_be(html.unescape(text)))
    yield from source.until(_SEP, fits=_is_short)
    name = html.unescape(name)
    yield from source.space()
    if (yield from source.one_of(_JSON)) is not None:
        yield from source.until(_SEP, fits=_is_short)
        yield from source.space()
        yield from call_in_json(source, calls, name)
        yield from source.space()
        yield from source.one_of(_JSON_END)
        yield from source.space()
        yield from source.close(_CALL_END)
        calls.settle()
        return
    written = Parameters(source, calls, name)
    while True:
        yield from source.space()
        if (yield from source.expect(_ARGUMENT, _CALL_END)) == _CALL_END:
            break
        key, _ = yield from source.until('"', fits=_is_short)
        more, _ = yield from source.until(_SEP, fits=_is_short)
        kind = _TYPE.search(more)
        yield from written.value(
            html.unescape(key),
            _ARGUMENT_END,
            (_ARGUMENT, _CALL_END),
            is_text=kind and kind[1] == "string",
        )
    written.end()


def _is_short(text: str) -> bool:
    return len(text) <= _MAX_TAG


def _call_grammar(lark: Lark, tool: Tool) -> str:
    head = row(lark.text(f'{_CALL}{html.escape(tool.name)}" index="'), '/[0-9]{1,3}/ "\\""')
    values = [
        (_value_grammar(lark, tool, name, schema), is_needed)
        for name, schema, is_needed in properties_of(tool.parameters, tool.parameters)
    ]
    return row(head, lark.text(_SEP), lark.any_order(values, ""), lark.text(_CALL_END))


def _value_grammar(lark: Lark, tool: Tool, name: str, schema: dict[str, Any]) -> str:
    types, end = types_of(schema, schema), lark.text(_ARGUMENT_END)
    kinds: list[str] = []
    if choices := string_choices(schema):
        kinds.append(
            row(_type_rule(lark, "string"), lark.one_of(list(map(lark.text, choices))), end)
        )
    elif "string" in types:
        kinds.append(
            row(_type_rule(lark, "string"), lark.value(_ARGUMENT_END, (_ARGUMENT, _CALL_END)))
        )
    if others := sorted(types - {"string"}):
        held = {"type": others} if "string" in types else schema
        names = {"number" if name == "integer" else name for name in others}
        kind = lark.one_of([_type_rule(lark, name) for name in sorted(names)])
        kinds.append(row(kind, lark.json(held, f"tool {tool.name}"), end))
    return row(lark.text(f'{_ARGUMENT}{html.escape(name)}" type="'), lark.one_of(kinds))


def _type_rule(lark: Lark, kind: str) -> str:
    return lark.text(f'{kind}"{_SEP}')


def detect(sample: CallSample) -> Xtml | None:
    """By the text before a call."""
    return Xtml() if f'{_CALL}{NAME}"' in sample.call else None
