"""Which places of a conversation a template shows, and which orders of turns it takes."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from worker.chat.dialects.sample import VALUE
from worker.chat.probe import (
    AGAIN,
    ANSWER,
    ID,
    LATER,
    LONG_ID,
    MORE,
    ODD,
    RESULT,
    SYSTEM,
    TEXT,
    USER,
    TemplateProbe,
)
from worker.chat.template import ChatTemplate
from worker.errors import RequestError


def table_of(source: str, *, bos: str, eos: str) -> dict[str, str]:
    """What a template does with each place of a conversation, in words; `error` says instead why it
    cannot be read, or why no chat can be rendered."""
    try:
        probe = PlaceProbe(ChatTemplate(source, bos=bos, eos=eos))
    except RequestError as error:
        return {"error": error.message}
    if probe.failure is None:
        return probe.table()
    return {"error": probe.failure, "unknown": probe.unknown}


class PlaceProbe(TemplateProbe):
    """Renders conversations with a marked word in each place."""

    def __init__(self, template: ChatTemplate) -> None:
        super().__init__(template)
        self._roles: dict[str, bool] = {}  # those that it names -> whether it shows them

    @cached_property
    def keeps_text(self) -> bool:
        """Whether the template shows both calls and the text beside them."""
        if self.shape is None:
            return False
        text = self.with_call(self.shape, content=TEXT)
        return VALUE in text and TEXT in text

    @cached_property
    def keeps_text_before(self) -> bool:
        """Whether the template shows a text and then, as another message, calls; where answers may
        not follow each other, with a user's turn between them."""
        if self.shape is None:
            return False
        between = () if self.keeps_neighbours["assistant"] else (AGAIN,)
        text = self.text(
            USER,
            ANSWER,
            *between,
            self.message(self.shape),
            RESULT,
            MORE,
            AGAIN,
            tools=self.tools,
        )
        return all(word in text for word in (TEXT, VALUE, "zqresult", "zqmore"))

    @property
    def result(self) -> dict[str, Any]:
        """A tool's result as the template gets it."""
        return RESULT if self.knows_results else {"role": "user", "content": "zqresult"}

    @cached_property
    def keeps_old_text(self) -> bool:
        """Whether the text beside calls is still shown when the turn has been answered."""
        if self.shape is None:
            return False
        call = self.message(self.shape, content=TEXT)
        return TEXT in self.text(USER, call, self.result, MORE, AGAIN, opens=True, tools=self.tools)

    @cached_property
    def keeps_last_call(self) -> bool:
        """Whether the template shows a call that nothing follows."""
        if self.shape is None:
            return True
        call = self.message(self.shape)
        return VALUE in self.text(USER, call, opens=True, tools=self.tools)

    @cached_property
    def keeps_several(self) -> bool:
        """Whether the template shows several calls of one message."""
        shape = self.shape
        return shape is not None and "zqsecond" in self.with_call(shape, second="zqsecond")

    @cached_property
    def keeps_odd(self) -> bool:
        """Whether arguments that are no object are shown as they were written."""
        if self.shape is None:
            return False
        return ODD in self.with_call(self.shape, arguments=ODD)

    @cached_property
    def knows_results(self) -> bool:
        """Whether the template shows a tool's result."""
        if self.shape is None:
            return self.knows_lone_results
        call = self.message(self.shape)
        return "zqresult" in self.text(USER, call, RESULT, opens=True, tools=self.tools)

    @cached_property
    def knows_lone_results(self) -> bool:
        """Whether the template shows a result after a message without calls."""
        orders = ((USER, ANSWER, RESULT), (USER, ANSWER, RESULT, MORE, AGAIN))
        return all(
            "zqresult" in self.text(*order, opens=True, tools=self.tools) for order in orders
        )

    @cached_property
    def knows_uncalled_results(self) -> bool:
        """Whether the template shows results where nothing was called, also one without a name that
        comes first."""
        result = {"role": "tool", "content": "zqresult"}
        first = self.text(result, AGAIN, opens=True, **self.no_tools)
        return self.knows_lone_results and all(word in first for word in ("zqresult", "zqagain"))

    @cached_property
    def tells_results_apart(self) -> bool:
        """Whether a result is shown with the id of its call."""
        if self.shape is None or not self.knows_results:
            return False
        call = self.message(self.shape)
        text = self.text(USER, call, RESULT, opens=True, tools=self.tools)
        return text.count(ID) > 1

    @cached_property
    def wants_short_ids(self) -> bool:
        """Whether the template refuses ids of more than nine letters and digits."""
        if self.shape is None or not self.knows_results:
            return False
        call = self.message(self.shape, call_id=LONG_ID)
        result = {**RESULT, "tool_call_id": LONG_ID}
        return not self.text(USER, call, result, opens=True, tools=self.tools)

    @cached_property
    def keeps_user_after_result(self) -> bool:
        """Whether a user may speak right after a result."""
        if self.shape is None or not self.knows_results:
            return True
        call = self.message(self.shape)
        text = self.text(USER, call, RESULT, AGAIN, opens=True, tools=self.tools)
        return "zqagain" in text and "zqresult" in text

    @cached_property
    def knows_system(self) -> bool:
        """Whether the template shows a first system message, also beside tools."""
        return all(
            "zqsystem" in self.text(SYSTEM, USER, opens=True, **given) for given in self.beside
        )

    @cached_property
    def knows_system_to_the_end(self) -> bool:
        """Whether the template shows a first system message also where no user speaks last."""
        shape = self.shape
        last = (ANSWER,) if shape is None else (self.message(shape), self.result)
        return all(
            "zqsystem" in self.text(SYSTEM, USER, *last, opens=True, **given)
            for given in self.beside
        )

    @cached_property
    def knows_later_system(self) -> bool:
        """Whether the template shows a system message after others, wherever it stands."""
        first = SYSTEM if self.knows_system else USER
        orders = (
            (first, USER, ANSWER, LATER, AGAIN),
            (first, USER, ANSWER, AGAIN, LATER),
            (USER, LATER, ANSWER, AGAIN),
        )
        return all(
            "zqlater" in (text := self.text(*order, opens=True, **given))
            and all(each["content"] in text for each in order)
            for order in orders
            for given in self.beside
        )

    @cached_property
    def knows_system_alone(self) -> bool:
        """Whether the template shows a system message without any other."""
        return "zqsystem" in self.text(SYSTEM, opens=True, **self.no_tools)

    @cached_property
    def keeps_neighbours(self) -> dict[str, bool]:
        """Role -> whether its messages may follow each other."""
        users = self.text(USER, AGAIN, opens=True, **self.no_tools)
        answers = self.text(USER, ANSWER, MORE, AGAIN, opens=True, **self.no_tools)
        return {
            "user": all(word in users for word in ("zquser", "zqagain")),
            "assistant": all(word in answers for word in (TEXT, "zqmore", "zqagain")),
        }

    @cached_property
    def keeps_early_answers(self) -> bool:
        """Whether an assistant may speak first."""
        text = self.text(ANSWER, USER, opens=True, **self.no_tools)
        if self.shape is None:
            return TEXT in text and "zquser" in text
        call = self.message(self.shape)
        called = self.text(call, self.result, AGAIN, opens=True, tools=self.tools)
        return TEXT in text and "zquser" in text and VALUE in called

    @cached_property
    def keeps_lone_answers(self) -> bool:
        """Whether an assistant may speak without any user."""
        return TEXT in self.text(ANSWER, opens=True, **self.no_tools)

    @cached_property
    def keeps_empty_answers(self) -> bool:
        """Whether an answer may be empty."""
        empty = {"role": "assistant", "content": ""}
        return bool(self.text(USER, empty, AGAIN, opens=True, **self.no_tools))

    def knows_role(self, role: str) -> bool:
        """Whether the template names this role, and shows what it says."""
        if role not in self._roles:
            if not any(f"{quote}{role}{quote}" in self.template.source for quote in "'\""):
                return False
            other = {"role": role, "content": "zqother"}
            self._roles[role] = "zqother" in self.text(USER, other, AGAIN, opens=True)
        return self._roles[role]

    @property
    def beside(self) -> tuple[dict[str, Any], ...]:
        """The variables of conversations without tools, and with tools where they are shown."""
        return (self.no_tools, {"tools": self.tools}) if self.shows_tools else (self.no_tools,)

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
            "unknown": self.unknown,
        }

    @property
    def unknown(self) -> str:
        return ", ".join(self.template.unknown) or "nothing"
