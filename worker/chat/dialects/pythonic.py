"""Calls as a list of Python's: LFM 2.

<|tool_call_start|>[sky(at="Rome", days=3), sea()]<|tool_call_end|>
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.chat.dialects.sample import KEY, NAME, CallSample
from worker.chat.message import Call, Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, properties_of, repeat, row, with_spaces
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import MAX_DEPTH
from worker.chat.reading.parameters import Parameters, escape
from worker.chat.reading.source import DamagedError, Steps, TextSource

OPEN, CLOSE = "<|tool_call_start|>", "<|tool_call_end|>"
# With these a template declares tools to models that call so, where it shows no call itself.
_DECLARED = ("<|tool_list_start|>", "List of tools: [")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_PLAIN = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "\n": ""}
_CODES = {"x": 2, "u": 4, "U": 8}
_SECOND = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_MAX_WORD = 512


class Pythonic(Syntax, frozen=True):
    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks("python", opens=(OPEN,), markers=(OPEN, CLOSE))

    def past(self, calls: Sequence[Call]) -> str:
        return f"{OPEN}[{', '.join(map(_write, calls))}]{CLOSE}"

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        call = lark.one_of([_call_grammar(lark, tool) for tool in tools])
        calls = repeat(call, '","', one=one)
        return CallGrammar(OPEN, with_spaces('"["', calls, '"]"', lark.text(CLOSE)))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        yield from source.expect(OPEN)
        yield from source.space()
        yield from source.expect("[")
        while True:
            yield from source.space()
            yield from _call(source, calls)
            yield from source.space()
            if (yield from source.expect(",", "]")) == "]":
                break
        calls.settle()
        yield from source.space()
        yield from source.close(CLOSE)


def _call(source: TextSource, calls: Calls) -> Steps[None]:
    name, _ = yield from source.until("(", fits=lambda text: calls.may_be(text.strip()))
    written = Parameters(source, calls, name.strip())
    while True:
        yield from source.space()
        if (yield from source.one_of(")")) is not None:
            break
        key, _ = yield from source.until("=", fits=lambda text: len(text) <= _MAX_WORD)
        written.key(key.strip())
        yield from _value(source, calls, 1)
        yield from source.space()
        if (yield from source.expect(",", ")")) == ")":
            break
    written.end()


def _value(source: TextSource, calls: Calls, depth: int) -> Steps[None]:
    if depth > MAX_DEPTH:
        raise DamagedError
    yield from source.space()
    mark = yield from source.one_of('"', "'", "[", "(", "{")
    if mark is None:
        yield from _word(source, calls)
    elif mark in "\"'":
        yield from _string(source, calls, mark)
    else:
        yield from _many(source, calls, mark, depth)


def _many(source: TextSource, calls: Calls, mark: str, depth: int) -> Steps[None]:
    """A list, a tuple or a dictionary, after its first character."""
    end = {"[": "]", "(": ")", "{": "}"}[mark]
    calls.add("{" if mark == "{" else "[")
    divides = ""
    while True:
        yield from source.space()
        if (yield from source.one_of(end)) is not None:
            break
        calls.add(divides)
        divides = ", "
        if mark == "{":
            quote = yield from source.expect('"', "'")
            yield from _string(source, calls, quote)
            yield from source.space()
            calls.add((yield from source.expect(":")) + " ")
        yield from _value(source, calls, depth + 1)
        yield from source.space()
        if (yield from source.expect(",", end)) == end:
            break
    calls.add("}" if mark == "{" else "]")


def _word(source: TextSource, calls: Calls) -> Steps[None]:
    text = ""
    while (char := (yield from source.peek())) and (char.isalnum() or char in "+-._"):
        text += char
        source.skip(1)
        if len(text) > _MAX_WORD:
            raise DamagedError
    text = _WORDS.get(text, text)
    if not _PLAIN.fullmatch(text):
        raise DamagedError
    calls.add(text)


def _string(source: TextSource, calls: Calls, quote: str) -> Steps[None]:
    calls.add('"')
    while True:
        text, mark = source.take((quote, "\\"))
        calls.add(escape(text))
        if mark == quote:
            break
        if mark is None:
            if source.is_ended:
                raise DamagedError
            yield
        else:
            calls.add(escape((yield from _escape(source))))
    calls.add('"')


def _escape(source: TextSource) -> Steps[str]:
    """What follows a backslash; what Python knows no escape for stays as it is."""
    char = yield from source.peek()
    source.skip(len(char))
    if char not in _CODES:
        return _ESCAPES.get(char, f"\\{char}")
    code = yield from source.peek(_CODES[char])
    try:
        number = int(code, 16)
        source.skip(len(code))
        if 0xD800 <= number <= 0xDBFF:
            return (yield from _surrogate(source, number))
        return "\ufffd" if 0xDC00 <= number <= 0xDFFF else chr(number)
    except (ValueError, OverflowError):
        raise DamagedError from None


def _surrogate(source: TextSource, first: int) -> Steps[str]:
    """The character of a surrogate pair, as JSON writes it; U+FFFD where its second half is
    missing."""
    came = yield from source.peek(6)
    if not _SECOND.fullmatch(came):
        return "\ufffd"
    source.skip(6)
    return chr(0x10000 + (first - 0xD800) * 0x400 + int(came[2:], 16) - 0xDC00)


def _call_grammar(lark: Lark, tool: Tool) -> str:
    """Values are written as JSON, which is nearly Python."""
    parts = [
        (row(lark.text(f"{name}="), lark.json(schema, f"tool {tool.name}")), is_needed)
        for name, schema, is_needed in properties_of(tool.parameters, tool.parameters)
    ]
    return row(lark.text(f"{tool.name}("), lark.any_order(parts, '"," WS?'), '")"')


def _write(call: Call) -> str:
    """What is no object stays as it is."""
    named = call.named
    if named is None:
        return f"{call.name}({call.arguments})"
    return f"{call.name}({', '.join(f'{key}={value!r}' for key, value in named.items())})"


def detect(sample: CallSample) -> Pythonic | None:
    """By the text before a call, or that before the tools."""
    is_shown = f"{OPEN}[{NAME}({KEY}=" in sample.call
    is_told = not sample.call and (
        OPEN in sample.source or any(text in sample.prompt for text in _DECLARED)
    )
    return Pythonic() if is_shown or is_told else None
