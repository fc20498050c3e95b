"""Gemma 4's calls, whose strings stand between marks of their own.

<|tool_call>call:sky{at:<|"|>Rome<|"|>,days:[1,2],more:{deep:true}}<tool_call|>
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.chat.dialects.gemma_objects import GemmaObjects
from worker.chat.dialects.sample import NAME, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import MAX_DEPTH, json_value
from worker.chat.reading.lark import Lark, object_schema, row
from worker.chat.reading.parameters import quoted
from worker.chat.reading.source import DamagedError, Steps, TextSource

_CHANNEL, _CHANNEL_END = "<|channel>", "<channel|>"
OPEN, CLOSE, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_MAX_KEY = 256


class Gemma(Syntax, frozen=True):
    @property
    def name(self) -> str:
        return "gemma"

    @property
    def opens(self) -> tuple[str, ...]:
        return (OPEN,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (OPEN, CLOSE, QUOTE, _CHANNEL, _CHANNEL_END)

    @property
    def silent(self) -> tuple[str, ...]:
        """Channels that the model opens or closes where there is none."""
        return (_CHANNEL, _CHANNEL_END)

    @property
    def anywhere(self) -> bool:
        return True

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        objects = GemmaObjects(lark, QUOTE)
        close = lark.text(CLOSE)
        call = lark.one_of(
            [
                row(lark.text(f"call:{tool.name}"), objects.of(object_schema(tool)), close)
                for tool in tools
            ]
        )
        return CallGrammar(OPEN, lark.again(call, OPEN, one=one))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        yield from source.expect(OPEN)
        yield from source.space()
        yield from source.expect("call:")
        yield from source.space()
        name, _ = yield from source.until("{", fits=lambda text: calls.may_be(text.strip()))
        calls.begin(name.strip())
        yield from self._object(source, calls, 1)
        calls.end()
        yield from source.space()
        yield from source.one_of(CLOSE)

    def _object(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        """After its `{`."""
        is_first = True
        calls.add("{")
        while True:
            yield from source.space()
            if is_first and (yield from source.one_of("}")) is not None:
                break
            key = yield from self._key(source)
            calls.add(f'{"" if is_first else ", "}"{quoted(key)}": ')
            is_first = False
            yield from self._value(source, calls, depth)
            yield from source.space()
            if (yield from source.expect(",", "}")) == "}":
                break
        calls.add("}")

    def _key(self, source: TextSource) -> Steps[str]:
        def fits(text: str) -> bool:
            return len(text) <= _MAX_KEY

        mark = yield from source.one_of(QUOTE, '"')
        key, _ = yield from source.until(mark or ":", fits=fits)
        if mark:
            yield from source.space()
            yield from source.expect(":")
            return key
        return key.strip()

    def _list(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        """After its `[`."""
        calls.add("[")
        is_first = True
        while True:
            yield from source.space()
            if is_first and (yield from source.one_of("]")) is not None:
                break
            calls.add("" if is_first else ", ")
            is_first = False
            yield from self._value(source, calls, depth)
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                break
        calls.add("]")

    def _value(self, source: TextSource, calls: Calls, depth: int) -> Steps[None]:
        if depth > MAX_DEPTH:
            raise DamagedError
        yield from source.space()
        mark = yield from source.one_of(QUOTE, "{", "[")
        if mark == QUOTE:
            yield from self._string(source, calls)
        elif mark == "{":
            yield from self._object(source, calls, depth + 1)
        elif mark == "[":
            yield from self._list(source, calls, depth + 1)
        else:
            calls.add((yield from json_value(source)).strip())

    def _string(self, source: TextSource, calls: Calls) -> Steps[None]:
        """After its opening mark."""
        calls.add('"')
        while True:
            text, mark = source.take((QUOTE,))
            calls.add(quoted(text))
            if mark is not None:
                break
            if source.is_ended:
                raise DamagedError
            yield
        calls.add('"')


def found(sample: CallSample) -> Gemma | None:
    """By the text before a call."""
    return Gemma() if f"{OPEN}call:{NAME}" in sample.call else None
