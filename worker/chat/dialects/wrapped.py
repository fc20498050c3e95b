"""Calls as JSON objects between two texts, or bare: Hermes, Qwen, Granite, Llama, Command R.

<tool_call>{"name": "sky", "arguments": {"at": "Rome"}}</tool_call>
<|tool_call|>[{"name": "sky", "arguments": {}}, {"name": "sea", "arguments": {}}]
{"name": "sky", "parameters": {"at": "Rome"}}
"""

from __future__ import annotations

import re

from worker.chat.dialects.sample import MARK, NAME, CallSample
from worker.chat.reading.answer import Syntax
from worker.chat.reading.call_object import call_objects
from worker.chat.reading.calls import Calls
from worker.chat.reading.source import Steps, TextSource

BARE = "{"
_PYTHON_TAG = "<|python_tag|>"
_OBJECT = re.compile(
    rf'(?P<open>{MARK}?)\s*(?P<list>\[?)\s*\{{(?:\s*"\w+":\s*"[^"]*",)*\s*'
    rf'"(?:name|tool_name)":\s*"{NAME}",\s*"(?P<arguments>arguments|parameters)":\s*'
    rf"\{{[^}}]*\}}[^}}]*\}}\s*\]?\s*(?P<close>{MARK}?)"
)
# Texts with which templates tell the model how to call, where they show no call themselves.
_TOLD = ("<|tool_call|>", "<tool_calls>", "<tool_call>")


class WrappedCalls(Syntax, frozen=True):
    """
    open       what stands before; `{` for bare ones
    close      what stands after; empty: nothing
    is_list    they stand in a JSON list
    arguments  the name of their arguments
    """

    open: str
    close: str
    is_list: bool = False
    arguments: str = "arguments"

    @property
    def name(self) -> str:
        return f"json after {self.open}"

    @property
    def opens(self) -> tuple[str, ...]:
        return (BARE, _PYTHON_TAG) if self.open == BARE else (self.open,)

    @property
    def markers(self) -> tuple[str, ...]:
        return (*self.opens, self.close)

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:
        """Objects, in a list or not."""
        if (yield from source.peek()) != BARE:
            yield from source.expect(*self.opens)
        closes = (self.close,) if self.close else ()
        yield from call_objects(source, calls, closes, is_strict=self.open == BARE)


def found(sample: CallSample) -> WrappedCalls | None:
    """By what stands around the object of a call."""
    if match := sample.found(_OBJECT):
        return WrappedCalls(
            open=match["open"] or BARE,
            close=match["close"] if match["open"] else "",
            is_list=bool(match["list"]),
            arguments=match["arguments"],
        )
    told = next((text for text in _TOLD if text in sample.source), None)
    if sample.call or told is None:
        return None
    close = told.replace("<", "</")
    if close in sample.source:
        return WrappedCalls(told, close, is_list=f"{told}[" in sample.source)
    return WrappedCalls(told, "", is_list=True)
