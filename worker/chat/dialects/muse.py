"""Muse's messages, each of which names its recipient: `self` is thought, `user` is content.

 to=self<|message|>Rain?<|eom|><|start|>assistant to=sky<|message|><atem:function_calls>
<atem:invoke name="sky">
<atem:parameter name="at">Rome</atem:parameter>
</atem:invoke>
</atem:function_calls><|eot|>
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from worker.chat.dialects import tagged
from worker.chat.dialects.harmony import MESSAGE, START, HarmonyHeader, HarmonyReader
from worker.chat.dialects.sample import NAME, CallSample
from worker.chat.dialects.tagged import TaggedCalls
from worker.chat.message import Call, Tool
from worker.chat.reading.answer import (
    AnswerGrammar,
    AnswerStart,
    CallGrammar,
    SyntaxMarks,
    ThoughtEnd,
    ThoughtTags,
    past_calls,
)
from worker.chat.reading.call_grammar import Lark, row, with_spaces
from worker.chat.reading.source import Steps

_NEXT, _LAST = "<|eom|>", "<|eot|>"
_OPENING = f"{START}assistant"
_TO = " to="
_SELF, _USER = f"{_TO}self{MESSAGE}", f"{_TO}user{MESSAGE}"


class MuseReader(HarmonyReader):
    """Calls are read in messages to tools only: what a thought or an answer quotes is a text."""

    ends: ClassVar[tuple[str, ...]] = (_NEXT, _LAST, START)
    unmarked: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        tools: Sequence[Tool],
        calls: TaggedCalls,
        *,
        prompt: str,
        inline: bool = False,
        parallel: bool = True,
    ) -> None:
        """calls: how they are written"""
        super().__init__(tools, prompt=prompt, inline=inline, parallel=parallel)
        self._syntax = calls

    def is_thought(self, header: HarmonyHeader) -> bool:
        return header.recipient == "self"

    def read_call(self, header: HarmonyHeader) -> Steps[None]:  # noqa: ARG002
        """A call's body, which names the tool again. Raises DamagedError."""
        yield from self._source.space()
        yield from self._syntax.read(self._source, self._calls)


class Muse(msgspec.Struct, frozen=True):
    """calls: how they are written, in messages to their tools"""

    calls: TaggedCalls

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks(
            "muse", markers=(START, MESSAGE, _NEXT, _LAST, *self.calls.marks.markers)
        )

    def past(self, calls: Sequence[Call]) -> str:
        return past_calls(calls)

    def thought_end(self, tags: ThoughtTags, *, is_open: bool) -> ThoughtEnd:  # noqa: ARG002
        return ThoughtEnd((_SELF,), (_NEXT,), f"{_NEXT}{_OPENING}{_USER}", is_open=False)

    def reader(
        self, tools: Sequence[Tool], start: AnswerStart, *, inline: bool, parallel: bool
    ) -> MuseReader:
        return MuseReader(tools, self.calls, prompt=start.prompt, inline=inline, parallel=parallel)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:
        """As in all messages; one call ends an answer."""
        return self.calls.grammar(lark, tools, one=one)

    def answer(
        self, lark: Lark, _start: AnswerStart, *, call: CallGrammar | None, body: str
    ) -> AnswerGrammar:
        """After its thoughts; an empty one may not come.

        It follows an opening, with which the prompt ends.
        """
        thought = lark.rule(row(lark.text(_SELF), lark.until(_NEXT), lark.text(_OPENING)))
        kinds: list[str] = []
        if call is not None:
            # In one piece, so that it may begin as `self` does.
            head = row(f"/{_TO}[^<\\s]{{1,256}}/", lark.text(MESSAGE))
            kinds.append(row(head, with_spaces(lark.text(call.opens), f"{call.rest} WS?")))
        if body:
            kinds.append(row(lark.text(_USER), body))
        return AnswerGrammar(f"{thought}* {lark.one_of(kinds)}")


def detect(sample: CallSample) -> Muse | None:
    """By a recipient before the call, and an opening without one."""
    is_addressed = f"{NAME}{MESSAGE}" in sample.call and sample.prompt.endswith(_OPENING)
    calls = tagged.detect(sample) if is_addressed else None
    return Muse(calls) if calls else None
