"""What a template shows of a call: the difference that a call makes to a rendered conversation."""

from __future__ import annotations

import re

import msgspec

# A call that no template writes by itself.
NAME, KEY, VALUE = "zqtool", "zqkey", "zqvalue"
ARGUMENTS = {KEY: VALUE}


class CallSample(msgspec.Struct, frozen=True):
    """What is known of how a model calls.

    call    the text of a call of NAME with ARGUMENTS; empty where the template shows none
    source  the template
    prompt  the beginning of an answer with tools: what the prompt ends with
    """

    call: str
    source: str
    prompt: str

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        return pattern.search(self.call)


def difference(with_call: str, without: str) -> str:
    """What the first text has and the other has not; a marker is never cut."""
    start = 0
    for left, right in zip(with_call, without, strict=False):
        if left != right:
            break
        start += 1
    if with_call.endswith(">>>", 0, start):
        start -= len(">>>")
    opened = max(with_call.rfind(bracket, 0, start) for bracket in "<[")
    closed = max(with_call.rfind(bracket, 0, start) for bracket in ">]")
    if opened > closed:
        start = opened
    end = len(with_call)
    for left, right in zip(reversed(with_call[start:]), reversed(without), strict=False):
        if left != right:
            break
        end -= 1
    opened, closed = with_call.find(">", end), with_call.find("<", end)
    if end < len(with_call) and opened >= 0 and not 0 <= closed < opened:
        end = opened + 1
    return with_call[start:end]


# A text that stands for something: `<tool_call>`, `[TOOL_CALLS]`, `<|call|>`.
MARK = r"(?:<[^<>\s]+>|\[[A-Z_]+\])"
