"""Calls as a name and a JSON object after it: DeepSeek, Kimi, Solar, Functionary.

<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>sky<｜tool▁sep｜>{"at": "Rome"}<｜tool▁call▁end｜>...
<|tool_call_begin|>functions.sky:0<|tool_call_argument_begin|>{"at": "Rome"}<|tool_call_end|>
<function=sky>{"at": "Rome"}</function>
>>>sky
{"at": "Rome"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from worker.chat.dialects.sample import KEY, MARK, NAME, CallSample
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, repeat, row, with_spaces
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.source import DamagedError, Steps, TextSource

_CALL = re.compile(
    rf"(?P<section>(?:{MARK}\s*)*?)(?P<begin>{MARK}|<[^<>\s]+=|>>>)(?:(?P<id>[\w-]+)(?P<ided>{MARK}))?"
    rf"(?P<before>functions\.)?{NAME}(?P<after>:0)?(?P<named>{MARK}|>|\n)(?P<pad>\s*(?:```json\s*)?)"
    rf'\{{\s*"{KEY}"[^}}]*\}}(?P<end>(?:\s*```)?\s*(?:{MARK})?)\s*(?P<closes>(?:{MARK}\s*)*)'
)
_OPENING = re.compile(rf"{MARK}assistant\Z")
_MAX_ID = 64
_KIND = "function"  # where a kind of call stands before the name
_FENCE = "```json"


class NamedCalls(Syntax, frozen=True):
    """
    section   text before the first call; empty: none
    begin     text before a call, such as `<function=`
    ided      text after an id or a kind that stands before the name; empty: none stands there
    is_id     what stands there is the call's id, else a kind
    before    text before the name; a number after it makes both the call's id
    named     text after the name
    is_fenced the arguments stand in a Markdown fence
    end       text after the arguments
    close     text after the last call
    opening   of a message, where an answer has several of them: never content; empty: it has one
    """

    section: str
    begin: str
    ided: str
    is_id: bool
    before: str
    named: str
    is_fenced: bool
    end: str
    close: str
    opening: str

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks(
            f"name and json after {self.begin}",
            opens=(self.section, self.begin) if self.section else (self.begin,),
            markers=(self.section, self.begin, self.ided, self.named, self.end, self.close,
                     self.opening),
            silent=(self.opening,) if self.opening else (),
        )  # fmt: skip

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        begin = lark.text(self.begin)
        call = lark.one_of([self._call_grammar(lark, tool) for tool in tools])
        if not self.section:
            return CallGrammar(self.begin, lark.again(call, self.begin, one=one))
        if not self.close:
            return CallGrammar(self.section, row(begin, lark.again(call, self.begin, one=one)))
        calls = repeat(row(begin, call), one=one)
        return CallGrammar(self.section, with_spaces(calls, lark.text(self.close)))

    def _call_grammar(self, lark: Lark, tool: Tool) -> str:
        kind = lark.text(f"{_KIND}{self.ided}" if self.ided else "")
        if self.ided and self.is_id:
            kind = row("/[A-Za-z0-9_-]{1,64}/", lark.text(self.ided))
        number = '":" /[0-9]{1,3}/' if self.before else ""
        name = row(lark.text(f"{self.before}{tool.name}"), number, lark.text(self.named))
        arguments = lark.arguments(tool)
        if self.is_fenced:
            arguments = row(lark.text(f"{_FENCE}\n"), arguments, lark.text("\n```"))
        return with_spaces(row(kind, name, arguments), lark.text(self.end))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """One call after the other, and the text that closes them."""
        if self.section and (yield from source.one_of(self.section)) is not None:
            yield from source.space()
        yield from source.expect(self.begin)
        while True:
            yield from self._call(source, calls)
            yield from source.space()
            if not self.section or (yield from source.one_of(self.begin)) is None:
                break
        if self.close:
            yield from source.close(self.close)

    def _call(self, source: TextSource, calls: Calls) -> Steps[None]:
        call_id = ""
        if self.ided:
            found, _ = yield from source.until(self.ided, fits=lambda text: len(text) <= _MAX_ID)
            call_id = found.strip() if self.is_id else ""
        if self.before:
            name, call_id = yield from self._read_number(source, calls)
        else:
            name, _ = yield from source.until(
                self.named, fits=lambda text: calls.may_be(text.strip())
            )
        yield from source.space()
        if self.is_fenced:
            yield from source.one_of(_FENCE)
            yield from source.space()
        yield from call_in_json(source, calls, name.strip(), call_id)
        yield from source.space()
        if self.is_fenced:
            yield from source.close("```")
            yield from source.space()
        if self.end:
            yield from source.close(self.end)
        calls.settle()

    def _read_number(self, source: TextSource, calls: Calls) -> Steps[tuple[str, str]]:
        """(name, id) of `functions.sky:0`, whose parts some models leave out."""

        def fits(text: str) -> bool:
            text = text.strip().removeprefix(self.before)
            return self.before.startswith(text) or calls.may_be(text.partition(":")[0])

        found, _ = yield from source.until(self.named, fits=fits)
        call_id = found.strip()
        name, colon, number = call_id.removeprefix(self.before).rpartition(":")
        if not colon:
            name = number
        elif not number.isdigit():
            raise DamagedError
        return name, call_id if colon else ""


def detect(sample: CallSample) -> NamedCalls | None:
    """By what stands around the name of a call."""
    match = sample.search(_CALL)
    if match is None:
        return None
    section = re.findall(MARK, match["section"])
    end = match["end"].strip().removeprefix("```").strip()
    closes = re.findall(MARK, match["closes"])
    opening = _OPENING.search(sample.prompt)
    return NamedCalls(
        section=section[0] if section else "",
        begin=match["begin"],
        ided=match["ided"] or "",
        is_id=match["id"] != _KIND,
        before=match["before"] or "",
        named=match["named"],
        is_fenced="```" in match["pad"],
        end=end,
        close=closes[0] if section and closes else "",
        opening=opening[0] if opening else "",
    )
