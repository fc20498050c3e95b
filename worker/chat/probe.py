"""What a template does with calls, tools and thoughts, found by rendering small conversations."""

from __future__ import annotations

import json
import re
import time
from functools import cached_property
from typing import Any

import msgspec

from worker.chat.dialects.sample import ARGUMENTS, KEY, NAME, VALUE, CallSample, difference
from worker.chat.template import ChatTemplate
from worker.errors import RequestError

MAX_SECONDS = 2.0  # CPU time of all renderings
THOUGHT_FIELDS = ("reasoning_content", "thinking", "reasoning", "thought")
_ID = "abcdef123"  # as Mistral's templates demand it
_USER = {"role": "user", "content": "zquser"}
_TEXT = "zqtext"
_THOUGHT = "zqthought"
_RESULT = {"role": "tool", "content": "zqresult", "tool_call_id": _ID, "name": NAME}
_TOOL = {
    "type": "function",
    "function": {
        "name": NAME,
        "description": "",
        "parameters": {"type": "object", "properties": {KEY: {"type": "string"}}},
    },
}
# What a template writes that takes the arguments for what they are not.
_MISREAD = re.compile(rf"\{{'{KEY}'|\\\"{KEY}")
_THINK_BLOCK = re.compile(r"\A.*</[^<>/\s]*think[^<>]*>\s*", re.DOTALL)


class CallShape(msgspec.Struct, frozen=True):
    """How a message with a call is to be given to a template.

    is_text  the arguments as JSON text, else as an object
    content  of a message that has only calls
    """

    is_text: bool
    content: str | None


def called(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    """A call as templates read it."""
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def thought_parts(thought: str, text: str | None) -> dict[str, Any]:
    """An answer whose content has a part for its thought."""
    parts = [{"type": "thinking", "thinking": thought}]
    if text:
        parts.append({"type": "text", "text": text})
    return {"role": "assistant", "content": parts}


def _is_read(text: str) -> bool:
    """Whether the thought stands there, and no list that was only printed."""
    return _THOUGHT in text and "'thinking'" not in text and '"thinking"' not in text


class TemplateProbe:
    """Renders conversations with texts that no template writes by itself."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._spent = 0.0

    def text(self, *messages: Any, opens: bool = False, **variables: Any) -> str:
        """The rendered messages; empty where the template refuses them, or has taken too long."""
        if self._spent > MAX_SECONDS:
            return ""
        started = time.thread_time()
        try:
            return self._template.render(messages, add_generation_prompt=opens, **variables)
        except RequestError:
            return ""
        finally:
            self._spent += time.thread_time() - started

    def opening(self, **variables: Any) -> str:
        """A question's prompt."""
        return self.text(_USER, opens=True, **variables)

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template tells the model which tools there are."""
        return NAME in self.opening(tools=[_TOOL])

    @cached_property
    def no_tools(self) -> dict[str, Any]:
        """The variables of a conversation without tools: some templates fail on null."""
        choices: tuple[dict[str, Any], ...] = ({"tools": None}, {}, {"tools": []})
        return next((choice for choice in choices if self.opening(**choice)), choices[0])

    @property
    def _tools(self) -> list[dict[str, Any]] | None:
        """As the template gets them."""
        return [_TOOL] if self.shows_tools else None

    @cached_property
    def shape(self) -> CallShape | None:
        """How calls are to be given; None: the template shows none."""
        for is_text in (False, True):
            for content in ("", None):
                shape = CallShape(is_text, content)
                text = self._after_user(self._with_call(shape))
                if NAME in text and VALUE in text and not _MISREAD.search(text):
                    return shape
        return None

    @cached_property
    def sample(self) -> CallSample:
        """What a call looks like."""
        shape = self.shape
        prompt = self.opening(tools=self._tools)
        if shape is None:
            return CallSample("", self._template.source, prompt)
        plain = self.text(_USER, {"role": "assistant", "content": _TEXT}, tools=self._tools)
        found = difference(self._after_user(self._with_call(shape)), self._after_user(plain))
        return CallSample(_THINK_BLOCK.sub("", found), self._template.source, prompt)

    @cached_property
    def keeps_text(self) -> bool:
        """Whether the template shows calls beside text."""
        return self.shape is not None and VALUE in self._with_call(self.shape, content=_TEXT)

    @cached_property
    def keeps_several(self) -> bool:
        """Whether the template shows several calls of one message."""
        shape = self.shape
        return shape is not None and "zqsecond" in self._with_call(shape, second="zqsecond")

    @cached_property
    def knows_results(self) -> bool:
        """Whether the template shows a tool's result."""
        if self.shape is None:
            return "zqresult" in self.text(_USER, {"role": "assistant", "content": _TEXT}, _RESULT)
        call = self._message(self.shape)
        return "zqresult" in self.text(_USER, call, _RESULT, opens=True, tools=self._tools)

    @cached_property
    def knows_system(self) -> bool:
        """Whether the template takes a system message."""
        return "zqsystem" in self.text({"role": "system", "content": "zqsystem"}, _USER)

    @cached_property
    def thought_field(self) -> str | None:
        """The field in which the template reads an assistant's thoughts."""
        return next((name for name in THOUGHT_FIELDS if self._with_thought(name)), None)

    @cached_property
    def thinks_in_parts(self) -> bool:
        """Whether the template reads a thought as a part of the content."""
        parts = thought_parts(_THOUGHT, _TEXT)
        return self.thought_field is None and _is_read(self.text(_USER, parts))

    @cached_property
    def parts_thought(self) -> bool:
        """Whether the template refuses a call with both a thought and a text."""
        if self.shape is None or self.thought_field is None:
            return False
        both = {self.thought_field: _THOUGHT, "content": _TEXT}
        return not self.text(_USER, self._message(self.shape, **both), tools=self._tools)

    @cached_property
    def around_thought(self) -> tuple[str, str] | None:
        """The texts before and after a thought in an answer."""
        if self.thought_field is None:
            return None
        before, _, after = self._with_thought(self.thought_field).partition(_THOUGHT)
        return before, after

    @cached_property
    def header(self) -> str:
        """With what each of the assistant's turns begins."""
        opening = self.opening()
        past = self.text(_USER, {"role": "assistant", "content": _TEXT})
        if not opening or not past:
            return ""
        common = _common(self._after_user(opening), self._after_user(past))
        place = max(common.rfind(bracket) for bracket in "<[")
        is_cut = place > max(common.rfind(bracket) for bracket in ">]")
        return common[:place] if is_cut else common

    def _after_user(self, text: str) -> str:
        return text.rpartition("zquser")[2]

    def _with_call(self, shape: CallShape, **more: Any) -> str:
        message = self._message(shape, **more)
        return self.text(_USER, message, tools=self._tools) or self.text(
            _USER, message, _RESULT, opens=True, tools=self._tools
        )

    def _message(
        self, shape: CallShape, *, second: str | None = None, **more: Any
    ) -> dict[str, Any]:
        arguments: Any = json.dumps(ARGUMENTS) if shape.is_text else ARGUMENTS
        calls = [called(NAME, arguments, _ID)]
        if second is not None:
            calls.append(called(second, arguments, _ID[::-1]))
        return {"role": "assistant", "content": shape.content, "tool_calls": calls, **more}

    def _with_thought(self, field: str) -> str:
        """An answer with a thought, alone or before a call; empty where it is not shown."""
        alone = {"role": "assistant", "content": _TEXT, field: _THOUGHT}
        texts = [self.text(_USER, alone)]
        if self.shape is not None:
            call = self._message(self.shape, **{field: _THOUGHT})
            for more in ({}, {"enable_thinking": True, "thinking": True}):
                given = {"tools": self._tools, **more}
                texts += [self.text(_USER, call, _RESULT, opens=True, **given)]
        return next((self._after_user(text) for text in texts if _THOUGHT in text), "")


def _common(left: str, right: str) -> str:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return left[:count]
