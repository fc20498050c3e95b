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
ID = "abcdef123"  # as Mistral's templates demand it
LONG_ID = "call_zqid-4567890123456789"
USER = {"role": "user", "content": "zquser"}
AGAIN = {"role": "user", "content": "zqagain"}
TEXT = "zqtext"
ANSWER = {"role": "assistant", "content": TEXT}
MORE = {"role": "assistant", "content": "zqmore"}
SYSTEM = {"role": "system", "content": "zqsystem"}
LATER = {"role": "system", "content": "zqlater"}
THOUGHT = "zqthought"
# Arguments of a call that were cut.
ODD = '{"zqodd": "a\nb'
RESULT = {"role": "tool", "content": "zqresult", "tool_call_id": ID, "name": NAME}


def _tool(parameter: dict[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {KEY: parameter}}
    function = {"name": NAME, "description": "", "parameters": schema}
    return {"type": "function", "function": function}


_TOOL = _tool({"type": "string"})
_DESCRIBED = _tool({"type": "string", "description": ""})
_NO_TOOLS: tuple[dict[str, Any], ...] = ({"tools": None}, {}, {"tools": []})
_DOCUMENTS = {"documents": [{"title": "zqtitle", "text": "zqdocument"}]}
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


def call_of(name: str, arguments: Any, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def thought_parts(thought: str, text: str | None) -> dict[str, Any]:
    """An answer whose content has a part for its thought."""
    parts = [{"type": "thinking", "thinking": thought}]
    if text:
        parts.append({"type": "text", "text": text})
    return {"role": "assistant", "content": parts}


def _is_read(text: str) -> bool:
    """Whether the thought stands there, and no list that was only printed."""
    return THOUGHT in text and "'thinking'" not in text and '"thinking"' not in text


class TemplateProbe:
    """Renders conversations with texts that no template writes by itself."""

    def __init__(self, template: ChatTemplate) -> None:
        self._spent = 0.0
        self.template = template
        for role in ("user", "system", "assistant", "tool"):
            if not self._shows_content(role):
                self.template = template.in_parts({*self.template.part_roles, role})
                if not self._shows_content(role):
                    self.template = template.in_parts(self.template.part_roles - {role})

    def _shows_content(self, role: str) -> bool:
        """Whether a message of this role is shown, with its content as `template` forms it."""
        said = {"role": role, "content": "zqpart"}
        call = self.message(CallShape(is_text=False, content=""))
        turns: dict[str, tuple[tuple[Any, ...], ...]] = {
            "user": ((said,),),
            "system": ((said, USER),),
            "assistant": ((USER, said, AGAIN), (USER, said)),
            "tool": ((USER, call, {**RESULT, **said}), (USER, ANSWER, {**RESULT, **said})),
        }
        return any(
            "zqpart" in text and "{'" not in text.partition("zqpart")[0][-40:]
            for messages in turns[role]
            if (text := self.text(*messages, opens=True))
        )

    def text(self, *messages: Any, opens: bool = False, **variables: Any) -> str:
        """The rendered messages; empty where the template refuses them, or has taken too long."""
        if self._spent > MAX_SECONDS:
            return ""
        started = time.thread_time()
        try:
            return self.template.render(messages, add_generation_prompt=opens, **variables)
        except RequestError:
            return ""
        finally:
            self._spent += time.thread_time() - started

    def opening(self, **variables: Any) -> str:
        return self.text(USER, opens=True, **variables)

    @cached_property
    def failure(self) -> str | None:
        """Why no chat can be rendered; None: one can."""
        if any(self.opening(**given) for given in (*_NO_TOOLS, {"tools": [_TOOL]}, _DOCUMENTS)):
            return None
        if self.text(SYSTEM, USER, opens=True, **self.no_tools):
            return None
        try:
            self.template.render([USER], **self.no_tools)
        except RequestError as error:
            return error.message
        return "The model's chat template shows nothing of a chat."

    @cached_property
    def shows_tools(self) -> bool:
        """Whether the template tells the model which tools there are."""
        return any(NAME in self.opening(tools=[tool]) for tool in (_TOOL, _DESCRIBED))

    @cached_property
    def wants_descriptions(self) -> bool:
        """Whether the template fails on parameters without a description."""
        return self.shows_tools and NAME not in self.opening(tools=[_TOOL])

    @cached_property
    def no_tools(self) -> dict[str, Any]:
        """The variables of a conversation without tools: some templates fail on null."""
        return next((choice for choice in _NO_TOOLS if self.opening(**choice)), _NO_TOOLS[0])

    @property
    def tools(self) -> list[dict[str, Any]] | None:
        if not self.shows_tools:
            return None
        return [_DESCRIBED if self.wants_descriptions else _TOOL]

    @cached_property
    def shape(self) -> CallShape | None:
        """How calls are to be given; None: the template shows none."""
        for is_text in (False, True):
            for content in ("", None):
                shape = CallShape(is_text, content)
                text = self._after_user(self.with_call(shape))
                if NAME in text and VALUE in text and not _MISREAD.search(text):
                    return shape
        return None

    @cached_property
    def sample(self) -> CallSample:
        shape = self.shape
        prompt = self.opening(tools=self.tools)
        if shape is None:
            return CallSample("", self.template.source, prompt)
        plain = self.text(USER, {"role": "assistant", "content": TEXT}, tools=self.tools)
        found = difference(self._after_user(self.with_call(shape)), self._after_user(plain))
        return CallSample(_THINK_BLOCK.sub("", found), self.template.source, prompt)

    @cached_property
    def thought_field(self) -> str | None:
        """The field in which the template reads an assistant's thoughts."""
        return next((name for name in THOUGHT_FIELDS if self._with_thought(name)), None)

    @cached_property
    def thinks_in_parts(self) -> bool:
        """Whether the template reads a thought as a part of the content."""
        parts = thought_parts(THOUGHT, TEXT)
        return self.thought_field is None and _is_read(self.text(USER, parts))

    @cached_property
    def parts_thought(self) -> bool:
        """Whether the template refuses a call with both a thought and a text."""
        if self.shape is None or self.thought_field is None:
            return False
        both = {self.thought_field: THOUGHT, "content": TEXT}
        return not self.text(USER, self.message(self.shape, **both), tools=self.tools)

    @cached_property
    def around_thought(self) -> tuple[str, str] | None:
        """The texts before and after a thought in an answer."""
        if self.thought_field is None:
            return None
        before, _, after = self._with_thought(self.thought_field).partition(THOUGHT)
        return before, after

    @cached_property
    def header(self) -> str:
        """With what each of the assistant's turns begins."""
        opening = self.opening()
        past = self.text(USER, {"role": "assistant", "content": TEXT})
        if not opening or not past:
            return ""
        common = _common(self._after_user(opening), self._after_user(past))
        place = max(common.rfind(bracket) for bracket in "<[")
        is_cut = place > max(common.rfind(bracket) for bracket in ">]")
        return common[:place] if is_cut else common

    def _after_user(self, text: str) -> str:
        return text.rpartition("zquser")[2]

    def with_call(self, shape: CallShape, **more: Any) -> str:
        message = self.message(shape, **more)
        return self.text(USER, message, tools=self.tools) or self.text(
            USER, message, RESULT, opens=True, tools=self.tools
        )

    def message(
        self,
        shape: CallShape,
        *,
        second: str | None = None,
        call_id: str = ID,
        arguments: Any = None,
        **more: Any,
    ) -> dict[str, Any]:
        if arguments is None:
            arguments = json.dumps(ARGUMENTS) if shape.is_text else ARGUMENTS
        calls = [call_of(NAME, arguments, call_id)]
        if second is not None:
            calls.append(call_of(second, arguments, ID[::-1]))
        return {"role": "assistant", "content": shape.content, "tool_calls": calls, **more}

    def _with_thought(self, field: str) -> str:
        """An answer with a thought, alone or before a call; empty where it is not shown."""
        alone = {"role": "assistant", "content": TEXT, field: THOUGHT}
        texts = [self.text(USER, alone)]
        if self.shape is not None:
            call = self.message(self.shape, **{field: THOUGHT})
            for more in ({}, {"enable_thinking": True, "thinking": True}):
                given = {"tools": self.tools, **more}
                texts += [self.text(USER, call, RESULT, opens=True, **given)]
        return next((self._after_user(text) for text in texts if THOUGHT in text), "")


def _common(left: str, right: str) -> str:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return left[:count]
