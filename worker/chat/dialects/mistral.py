"""Mistral's calls, the older list and the newer names; ids are nine letters and digits.

[TOOL_CALLS][{"name": "sky", "arguments": {"at": "Rome"}, "id": "abc123def"}]
[TOOL_CALLS]sky[ARGS]{"at": "Rome"}[TOOL_CALLS]sea[CALL_ID]abc123def[ARGS]{}
"""

from __future__ import annotations

from collections.abc import Sequence

from worker.chat.dialects.sample import CallSample
from worker.chat.dialects.wrapped import CallFields, call_object, call_objects
from worker.chat.message import Tool
from worker.chat.reading.answer import CallGrammar, Syntax, SyntaxMarks
from worker.chat.reading.call_grammar import Lark, repeat, row, with_spaces
from worker.chat.reading.calls import Calls, nine_alphanumerics
from worker.chat.reading.json_text import call_in_json
from worker.chat.reading.source import Steps, TextSource

_OPEN, _ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_MAX_ID = 64


class Mistral(Syntax, frozen=True):
    """
    is_list   calls stand in a JSON list
    has_args  a text divides name and arguments
    has_id    an id follows the name, or the arguments in a list
    """

    is_list: bool
    has_args: bool = False
    has_id: bool = False

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks(
            "mistral, " + ("list" if self.is_list else "names"),
            opens=(_OPEN,),
            markers=(_OPEN, _ID, _ARGUMENTS),
        )

    def make_id(self) -> str:
        return nine_alphanumerics()

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        if self.is_list:
            fields = CallFields(after="id" if self.has_id else "")
            call = lark.one_of([call_object(lark, tool, fields) for tool in tools])
            return CallGrammar(_OPEN, with_spaces('"["', repeat(call, '","', one=one), '"]"'))
        divides = lark.text(_ARGUMENTS if self.has_args else "")
        if self.has_id:
            divides = row(lark.text(_ID), "/[A-Za-z0-9]{9}/", divides)
        call = lark.one_of(
            [row(lark.text(tool.name), divides, lark.arguments(tool)) for tool in tools]
        )
        return CallGrammar(_OPEN, lark.again(call, _OPEN, one=one))

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """A list, or a name with its arguments."""
        yield from source.expect(_OPEN)
        yield from source.space()
        if (yield from source.peek()) in ("[", "{"):
            yield from call_objects(source, calls)
            return
        name, end = yield from source.until(
            _ID, _ARGUMENTS, "{", fits=lambda text: calls.may_be(text.strip())
        )
        call_id = ""
        if end == _ID:
            call_id, end = yield from source.until(
                _ARGUMENTS, "{", fits=lambda text: len(text) <= _MAX_ID
            )
        if end == "{":
            source.skip(-1)
        yield from source.space()
        yield from call_in_json(source, calls, name.strip(), call_id.strip())


def detect(sample: CallSample) -> Mistral | None:
    """By the text before the calls."""
    text = sample.call or sample.source
    if _OPEN not in text:
        return None
    has_args = _ARGUMENTS in text
    is_list = f"{_OPEN}[{{" in text or not (sample.call or has_args)
    return Mistral(is_list, has_args, has_id=_ID in text or '"id"' in sample.call)
