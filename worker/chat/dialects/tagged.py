"""Calls whose arguments stand one by one between tags: Qwen3-Coder, MiniMax, DeepSeek's DSML, GLM.

<tool_call><function=sky><parameter=at>Rome</parameter></function></tool_call>
<invoke name="sky"><parameter name="at">Rome</parameter></invoke>
<tool_call>sky<arg_key>at</arg_key><arg_value>Rome</arg_value></tool_call>
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from worker.chat.dialects.sample import KEY, MARK, NAME, VALUE, CallSample
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
from worker.chat.reading.parameters import Parameters, types_of
from worker.chat.reading.source import DamagedError, Steps, TextSource

_TAG = r"</?[^<>\s]+>"
_CALL = re.compile(
    rf"(?P<section>(?:{MARK}\s*)*)(?P<begin><[^<>\s]+(?:=| name=\"))?{NAME}"
    rf"(?P<named>\"?>|{_TAG})?\s*(?P<key>{_TAG}|<[^<>\s]+(?:=| name=\")){KEY}"
    rf"(?P<keyed>(?:\"[^<>]*)?>|{_TAG})(?:\s*(?P<value><arg_value[^<>]*>))?(?P<pad>\n?){VALUE}\n?(?P<end>{_TAG})\s*"
    rf"(?P<closes>(?:{_TAG}\s*)*)"
)
# Of the texts before a call, those that are about calls.
_CALLS = re.compile("call|tool|invoke", re.IGNORECASE)
_IS_TEXT = {' string="true"': True, ' string="false"': False}
_MARKED = ' string="'
_MAX_KEY = 256
_CDATA, _CDATA_END = "<![CDATA[", "]]>"


class TaggedCalls(Syntax, frozen=True):
    """
    section  texts before the first call; the last of them where `begin` is empty begins a call
    begin    text before a name, such as `<function=`; empty: the section's last text
    named    text after a name, such as `>`; empty: the first key or the end follows
    key      text before a key; `keyed` after it; `value` before a value, empty: nothing
    end      text after a value
    close    text after the last value
    closes   texts after the last call
    has_cdata whether a value may stand in an XML section of its own, which may hold any text
    """

    section: tuple[str, ...]
    begin: str
    named: str
    key: str
    keyed: str
    value: str
    end: str
    close: str
    closes: tuple[str, ...]
    is_padded: bool
    has_cdata: bool

    @property
    def marks(self) -> SyntaxMarks:
        opens = (*self.section[:1], self.begin)
        seen = (*self.section, self.begin, self.named, self.key, self.keyed, self.value, self.end)
        markers = (*seen, self.close, *self.closes)
        return SyntaxMarks(f"tags after {opens[0]}", opens=opens, markers=markers)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        call = lark.one_of([self._call_grammar(lark, tool) for tool in tools])
        begin, closes = lark.text(self.begin), [lark.text(text) for text in self.closes]
        opened, whole = self.begin, with_spaces(call, *closes)
        if self.section:
            opened, inner = self.section[0], map(lark.text, self.section[1:])
            whole = with_spaces(*inner, row(begin, repeat(call, begin, one=one)), *closes)
        return CallGrammar(opened, lark.again(whole, opened, one=one))

    def _call_grammar(self, lark: Lark, tool: Tool) -> str:
        values = [
            (self._value_grammar(lark, tool, name, schema), is_needed)
            for name, schema, is_needed in properties_of(tool.parameters, tool.parameters)
        ]
        head = lark.text(f"{tool.name}{self.named}")
        return with_spaces(head, lark.any_order(values, "WS?"), lark.text(self.close))

    def _value_grammar(self, lark: Lark, tool: Tool, name: str, schema: dict[str, Any]) -> str:
        types = types_of(schema, schema)
        keyed, is_text = self.keyed, "string" in types
        if keyed.startswith('"'):
            keyed = f'" string="{str(is_text).lower()}">' if _MARKED in keyed else '">'
        head = with_spaces(lark.text(f"{self.key}{name}{keyed}"), lark.text(self.value))
        end, pad = lark.text(self.end), lark.text("\n" if self.is_padded else "")
        if not is_text:
            return with_spaces(head, lark.json(schema, f"tool {tool.name}"), end)
        if choices := string_choices(schema):
            return row(head, pad, f"({' | '.join(map(lark.text, choices))})", pad, end)
        follows = (self.key, self.close)
        if not self.has_cdata:
            return row(head, pad, lark.value(self.end, follows))
        apart = with_spaces(row(lark.text(_CDATA), lark.value(_CDATA_END, (self.end,))), end)
        text = lark.value(self.end, follows, beside=_CDATA)
        return row(head, lark.one_of([apart, row(pad, text)]))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """One call after the other, and the texts that close them."""
        for text in self.section:
            yield from source.one_of(text)
            yield from source.space()
        yield from source.expect(self.begin)
        while True:
            yield from self._call(source, calls)
            yield from source.space()
            if self.begin in self.marks.opens[:1] or (yield from source.one_of(self.begin)) is None:
                break
        for text in self.closes:
            yield from source.space()
            yield from source.close(text)

    def _call(self, source: TextSource, calls: Calls) -> Steps[None]:
        yield from source.space()
        ends = (self.named,) if self.named else (self.key, self.close)
        name, end = yield from source.until(*ends, fits=lambda text: calls.may_be(text.strip()))
        written = Parameters(source, calls, name.strip())
        if not self.named:
            source.skip(-len(end))
        while True:
            yield from source.space()
            if (yield from source.expect(self.key, self.close)) == self.close:
                break
            key, is_text = yield from self._key(source)
            if self.value:
                yield from source.space()
                yield from source.expect(self.value)
            if self.has_cdata and (yield from source.one_of(_CDATA)):
                yield from written.value(key, _CDATA_END, (self.end,), is_text=is_text)
                yield from source.space()
                yield from source.expect(self.end)
                continue
            yield from written.value(
                key, self.end, (self.key, self.close), is_padded=self.is_padded, is_text=is_text
            )
        written.end()

    def _key(self, source: TextSource) -> Steps[tuple[str, bool | None]]:
        """(key, whether its tag says that the value is a string)"""

        def fits(text: str) -> bool:
            return len(text) <= _MAX_KEY

        if not self.keyed.startswith('"'):
            key, _ = yield from source.until(self.keyed, fits=fits)
            return key.strip(), None
        key, _ = yield from source.until('"', fits=fits)
        more, _ = yield from source.until(">", fits=fits)
        if more and more not in _IS_TEXT:
            raise DamagedError
        return key, _IS_TEXT.get(more)


def detect(sample: CallSample) -> TaggedCalls | None:
    """By what stands around the parts of a call."""
    match = sample.search(_CALL)
    if match is None:
        return None
    section = tuple(mark for mark in re.findall(MARK, match["section"]) if _CALLS.search(mark))
    closes = tuple(tag for tag in re.findall(_TAG, match["closes"]) if tag[1] == "/")
    if not closes or not (section or match["begin"]):
        return None
    return TaggedCalls(
        section=section if match["begin"] else section[:-1],
        begin=match["begin"] or section[-1],
        named=match["named"] or "",
        key=match["key"],
        keyed=match["keyed"],
        value=match["value"] or "",
        end=match["end"],
        close=closes[0],
        closes=closes[1:],
        is_padded=bool(match["pad"]),
        has_cdata=_CDATA in sample.source,
    )
