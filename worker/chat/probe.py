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
_LONG_ID = "call_zqid-4567890123456789"
_USER = {"role": "user", "content": "zquser"}
_AGAIN = {"role": "user", "content": "zqagain"}
_TEXT = "zqtext"
_ANSWER = {"role": "assistant", "content": _TEXT}
_MORE = {"role": "assistant", "content": "zqmore"}
_SYSTEM = {"role": "system", "content": "zqsystem"}
_LATER = {"role": "system", "content": "zqlater"}
_THOUGHT = "zqthought"
# Arguments of a call that were cut.
_ODD = '{"zqodd": "a\nb'
_RESULT = {"role": "tool", "content": "zqresult", "tool_call_id": _ID, "name": NAME}


def _tool(parameter: dict[str, str]) -> dict[str, Any]:
    schema = {"type": "object", "properties": {KEY: parameter}}
    function = {"name": NAME, "description": "", "parameters": schema}
    return {"type": "function", "function": function}


_TOOL = _tool({"type": "string"})
_DESCRIBED = _tool({"type": "string", "description": ""})
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
        call = self._message(CallShape(is_text=False, content=""))
        turns: dict[str, tuple[tuple[Any, ...], ...]] = {
            "user": ((said,),),
            "system": ((said, _USER),),
            "assistant": ((_USER, said, _AGAIN), (_USER, said)),
            "tool": ((_USER, call, {**_RESULT, **said}), (_USER, _ANSWER, {**_RESULT, **said})),
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
        """A question's prompt."""
        return self.text(_USER, opens=True, **variables)

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
        choices: tuple[dict[str, Any], ...] = ({"tools": None}, {}, {"tools": []})
        return next((choice for choice in choices if self.opening(**choice)), choices[0])

    @property
    def _tools(self) -> list[dict[str, Any]] | None:
        """As the template gets them."""
        if not self.shows_tools:
            return None
        return [_DESCRIBED if self.wants_descriptions else _TOOL]

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
            return CallSample("", self.template.source, prompt)
        plain = self.text(_USER, {"role": "assistant", "content": _TEXT}, tools=self._tools)
        found = difference(self._after_user(self._with_call(shape)), self._after_user(plain))
        return CallSample(_THINK_BLOCK.sub("", found), self.template.source, prompt)

    @cached_property
    def keeps_text(self) -> bool:
        """Whether the template shows both calls and the text beside them."""
        if self.shape is None:
            return False
        text = self._with_call(self.shape, content=_TEXT)
        return VALUE in text and _TEXT in text

    @cached_property
    def keeps_text_before(self) -> bool:
        """Whether the template shows a text and then, as another message, calls; where answers may
        not follow each other, with a user's turn between them."""
        if self.shape is None:
            return False
        between = () if self.keeps_neighbours["assistant"] else (_AGAIN,)
        text = self.text(
            _USER, _ANSWER, *between, self._message(self.shape), _RESULT, _MORE, _AGAIN,
            tools=self._tools,
        )  # fmt: skip
        return all(word in text for word in (_TEXT, VALUE, "zqresult", "zqmore"))

    @cached_property
    def keeps_several(self) -> bool:
        """Whether the template shows several calls of one message."""
        shape = self.shape
        return shape is not None and "zqsecond" in self._with_call(shape, second="zqsecond")

    @cached_property
    def keeps_odd(self) -> bool:
        """Whether arguments that are no object are shown as they were written."""
        if self.shape is None:
            return False
        return _ODD in self._with_call(self.shape, arguments=_ODD)

    @cached_property
    def knows_results(self) -> bool:
        """Whether the template shows a tool's result."""
        if self.shape is None:
            return self.knows_lone_results
        call = self._message(self.shape)
        return "zqresult" in self.text(_USER, call, _RESULT, opens=True, tools=self._tools)

    @cached_property
    def knows_lone_results(self) -> bool:
        """Whether the template shows a result after a message without calls."""
        orders = ((_USER, _ANSWER, _RESULT), (_USER, _ANSWER, _RESULT, _MORE, _AGAIN))
        return all(
            "zqresult" in self.text(*order, opens=True, tools=self._tools) for order in orders
        )

    @cached_property
    def tells_results_apart(self) -> bool:
        """Whether a result is shown with the id of its call."""
        if self.shape is None or not self.knows_results:
            return False
        call = self._message(self.shape)
        text = self.text(_USER, call, _RESULT, opens=True, tools=self._tools)
        return text.count(_ID) > 1

    @cached_property
    def wants_short_ids(self) -> bool:
        """Whether the template refuses ids of more than nine letters and digits."""
        if self.shape is None or not self.knows_results:
            return False
        call = self._message(self.shape, call_id=_LONG_ID)
        result = {**_RESULT, "tool_call_id": _LONG_ID}
        return not self.text(_USER, call, result, opens=True, tools=self._tools)

    @cached_property
    def keeps_user_after_result(self) -> bool:
        """Whether a user may speak right after a result."""
        if self.shape is None or not self.knows_results:
            return True
        call = self._message(self.shape)
        text = self.text(_USER, call, _RESULT, _AGAIN, opens=True, tools=self._tools)
        return "zqagain" in text and "zqresult" in text

    @cached_property
    def knows_system(self) -> bool:
        """Whether the template shows a first system message, also beside tools."""
        return all(
            "zqsystem" in self.text(_SYSTEM, _USER, opens=True, **given) for given in self._beside
        )

    @cached_property
    def knows_later_system(self) -> bool:
        """Whether the template shows a system message after others, wherever it stands."""
        first = _SYSTEM if self.knows_system else _USER
        orders = (
            (first, _USER, _ANSWER, _LATER, _AGAIN),
            (first, _USER, _ANSWER, _AGAIN, _LATER),
            (_USER, _LATER, _ANSWER, _AGAIN),
        )
        return all(
            "zqlater" in (text := self.text(*order, opens=True, **given))
            and all(each["content"] in text for each in order)
            for order in orders
            for given in self._beside
        )

    @cached_property
    def knows_system_alone(self) -> bool:
        """Whether the template shows a system message without any other."""
        return "zqsystem" in self.text(_SYSTEM, opens=True, **self.no_tools)

    @cached_property
    def keeps_neighbours(self) -> dict[str, bool]:
        """Role -> whether its messages may follow each other."""
        users = self.text(_USER, _AGAIN, opens=True, **self.no_tools)
        answers = self.text(_USER, _ANSWER, _MORE, _AGAIN, opens=True, **self.no_tools)
        return {
            "user": all(word in users for word in ("zquser", "zqagain")),
            "assistant": all(word in answers for word in (_TEXT, "zqmore", "zqagain")),
        }

    @cached_property
    def keeps_early_answers(self) -> bool:
        """Whether an assistant may speak first."""
        text = self.text(_ANSWER, _USER, opens=True, **self.no_tools)
        return _TEXT in text and "zquser" in text

    @cached_property
    def keeps_lone_answers(self) -> bool:
        """Whether an assistant may speak without any user."""
        return _TEXT in self.text(_ANSWER, opens=True, **self.no_tools)

    @cached_property
    def keeps_empty_answers(self) -> bool:
        """Whether an answer may be empty."""
        empty = {"role": "assistant", "content": ""}
        return bool(self.text(_USER, empty, _AGAIN, opens=True, **self.no_tools))

    @property
    def _beside(self) -> tuple[dict[str, Any], ...]:
        """The variables of conversations without tools, and with tools where they are shown."""
        return (self.no_tools, {"tools": self._tools}) if self.shows_tools else (self.no_tools,)

    def table(self) -> dict[str, str]:
        """What is done with each place of a conversation, in words."""
        calls = "written into the content"
        if self.shape is not None:
            calls = "arguments as text" if self.shape.is_text else "arguments as an object"
            calls += "" if self.keeps_several else ", one a message"
        beside = "kept" if self.keeps_text else "a message before the calls"
        if self.shape is None or not (self.keeps_text or self.keeps_text_before):
            beside = "the calls are written behind it"
        thoughts = f"read in {self.thought_field}" if self.thought_field else "left out"
        if self.thinks_in_parts:
            thoughts = "read in parts of the content"
        moved = "moved into the user's next turn"
        merged = [role for role, kept in self.keeps_neighbours.items() if not kept]
        parts = sorted(self.template.part_roles)
        return {
            "first system message": "shown" if self.knows_system else moved,
            "later system messages": "shown" if self.knows_later_system else moved,
            "content": f"in parts for {', '.join(parts)}" if parts else "text",
            "tools": "shown" if self.shows_tools else "described in the system part",
            "calls": calls,
            "text beside calls": beside,
            "odd arguments": "as they are" if self.keeps_odd else "the call is written as text",
            "results": "shown" if self.knows_results else "given as the user's",
            "thoughts": thoughts,
            "neighbours of one role": f"joined: {', '.join(merged)}" if merged else "kept",
            "assistant first": "kept" if self.keeps_early_answers else "a user's turn before it",
            "ids of calls": "nine letters and digits" if self.wants_short_ids else "any",
            "unknown": ", ".join(self.template.unknown) or "nothing",
        }

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
        self,
        shape: CallShape,
        *,
        second: str | None = None,
        call_id: str = _ID,
        arguments: Any = None,
        **more: Any,
    ) -> dict[str, Any]:
        if arguments is None:
            arguments = json.dumps(ARGUMENTS) if shape.is_text else ARGUMENTS
        calls = [called(NAME, arguments, call_id)]
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
