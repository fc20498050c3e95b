"""A conversation: its prompt's text, its turns, where other prompts leave this one, and where a
message that is to go on ends."""

from __future__ import annotations

import bisect
import uuid
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import msgspec

from worker.chat.message import Message
from worker.chat.template import ChatTemplate
from worker.errors import RequestError

# Ends the message while its template shows it: what was said may stand elsewhere in the prompt.
_END = uuid.uuid4().hex


class Continued(msgspec.Struct, frozen=True):
    """What the last message says, and the texts around a thought; empty ones: there are none.

    White space at its end stays, whatever the template does with it.

    thought  goes on where there is no content
    shown    the message as the template gets it, with a mark at its end
    before   the messages before it, as the template gets them
    """

    content: str
    thought: str
    opens: str
    closes: str
    shown: Mapping[str, Any] = {}
    before: Sequence[Mapping[str, Any]] = ()

    def cut(self, text: str) -> str:
        """The prompt up to the end of the message; empty where the template does not show it, or
        shows a thought as an answer, or an answer as a thought."""
        content, thought = self.content.strip(), self.thought.strip()
        before, mark, _ = text.rpartition(_END)
        said = content or thought
        if not mark or not before.endswith(said):
            return ""
        if content and self._opens(before.removesuffix(content)):
            return ""
        if thought and self.opens and not self._opens(before.rpartition(thought)[0]):
            return ""
        whole = self.content if content else self.thought
        return before + whole[len(whole.rstrip()) :]

    def after(self, opened: str) -> str:
        """The message behind a prompt that ends with the assistant's opening."""
        content = self.content if self.content.strip() else ""
        is_open = self._opens(opened)
        if self.thought and not is_open:
            opened += self.opens
        if not content:
            return opened + self.thought
        return opened + (self.thought + self.closes if self.thought or is_open else "") + content

    def _opens(self, text: str) -> bool:
        """Whether a thought begins behind it."""
        return bool(self.opens) and text.rstrip().endswith(self.opens.rstrip())


def mark_end(message: Message) -> Message:
    """The same with a mark at the end of what goes on."""
    if (message.content or "").strip():
        return msgspec.structs.replace(message, content=(message.content or "").rstrip() + _END)
    return msgspec.structs.replace(message, thought=(message.thought or "").rstrip() + _END)


def says_nothing(message: Message) -> bool:
    """Whether there is nothing to go on with."""
    return not ((message.content or "").strip() or (message.thought or "").strip() or message.calls)


# Nobody can send this text by accident. It has only letters and digits, so that no template
# escapes or trims it.
_MARK = uuid.uuid4().hex
_NEXT_TURN = ({"role": "assistant", "content": "x"}, {"role": "user", "content": "x"})


class Conversation:
    """Messages and what else a template makes their prompt from. It never changes.

    A turn is a user message with all that follows it up to the next user message: answers, tool
    calls and their results. What stands between the system part and the first user message goes
    with the first turn.

        system | user, assistant | user, assistant, tool, assistant | user
               [ old turn        )[ old turn                       )[ last turn
    """

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        ending: Continued | None = None,
        variables: Mapping[str, Any] | None = None,
    ) -> None:
        """
        add_generation_prompt  the prompt ends with the assistant's opening
        ending                 the prompt ends so, inside the last message, which is to go on
        variables              what else the template gets, such as tools
        """
        self.messages = tuple(messages)
        self._template = template
        self._opens = add_generation_prompt and ending is None
        self._ending = ending
        self._variables = dict(variables or {})

    @cached_property
    def _users(self) -> list[int]:
        """Places of the user's messages."""
        return [place for place, each in enumerate(self.messages) if each["role"] == "user"]

    @cached_property
    def _first(self) -> int:
        """The place behind the system part."""
        roles, system = [each["role"] for each in self.messages], ("system", "developer")
        return next((i for i, role in enumerate(roles) if role not in system), len(roles))

    @property
    def num_old_turns(self) -> int:
        """Turns before the last one."""
        return max(0, len(self._users) - 1)

    @cached_property
    def text(self) -> str:
        """The prompt. Raises RequestError, with the template's reason where it has one."""
        if self._ending is None:
            return self._render(self.messages, opens=self._opens)
        ending = self._ending
        try:
            text = ending.cut(self._render((*self.messages[:-1], ending.shown), opens=False))
        except RequestError:  # some templates want more of a message than a thought
            text = ""
        if text or self.messages[-1]["role"] != "assistant":
            return text or self._render(self.messages, opens=True)
        return ending.after(self._render(ending.before, opens=True))

    @cached_property
    def user_starts(self) -> list[int]:
        """Where in the text the content of each user message begins, in characters.

        Empty where the template does not show each of them once.
        """
        parts = self._continued.split(_MARK)
        return list(accumulate(map(len, parts[:-1]))) if len(parts) == len(self._users) + 1 else []

    def branches(self) -> list[int]:
        """Places in the text where another prompt is likely to go on differently; ascending.

        1. Before the first question: conversations with the same system part and tools.
        2. Before the last question: the same history with another question.
        3. Before the assistant's opening: the next call, whose answer is written otherwise.
        4. Where the next question changes what stood before it. Some templates leave out old
           thoughts then, others move the tools.

        Places that the template does not let us find are missing. It renders once more.
        """
        branch = _num_common(self.text, self._continued.replace(_MARK, ""))
        opening = self._opening if self._opens else ""
        end = len(self.text) - len(opening) if self.text.endswith(opening) else branch
        questions = (*self.user_starts[:1], *self.user_starts[-1:])
        found = {start for start in questions if start <= branch} | {end, min(branch, end)}
        return sorted(place for place in found if 0 < place < len(self.text))

    def without(self, count: int) -> Conversation:
        """The conversation without its `count` oldest turns; at most `num_old_turns`."""

        def shorten(messages: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
            rest = messages[self._users[count] :] if count else messages[self._first :]
            return (*messages[: self._first], *rest)

        ending = self._ending and msgspec.structs.replace(
            self._ending, before=shorten(self._ending.before)
        )
        return Conversation(
            self._template,
            shorten(self.messages),
            add_generation_prompt=self._opens,
            ending=ending,
            variables=self._variables,
        )

    @cached_property
    def _continued(self) -> str:
        """The prompt after one more turn, with a mark before each user's words of now; empty where
        the template refuses that."""
        answered = self.messages[-1]["role"] == "assistant"
        messages = [*map(_mark, self.messages), *(_NEXT_TURN[answered:])]
        try:
            return self._render(messages, opens=False)
        except RequestError:
            return ""

    @cached_property
    def _opening(self) -> str:
        """What `add_generation_prompt` adds, found with a short conversation."""
        short = _NEXT_TURN[1:]
        try:
            opened = self._render(short, opens=True, tools=None)
            return opened[_num_common(opened, self._render(short, opens=False, tools=None)) :]
        except RequestError:
            return ""

    def _render(
        self, messages: Sequence[Mapping[str, Any]], *, opens: bool, **variables: Any
    ) -> str:
        given = {**self._variables, **variables}
        return self._template.render(messages, add_generation_prompt=opens, **given)


def _mark(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message["role"] != "user":
        return message
    content = message["content"] or ""
    words = content.lstrip()  # templates trim
    return {**message, "content": content[: len(content) - len(words)] + _MARK + words}


def _num_common(left: str, right: str) -> int:
    """How many first characters are the same."""
    limit = min(len(left), len(right))
    lengths = range(1, limit + 1)
    return bisect.bisect_left(lengths, True, key=lambda n: left[:n] != right[:n])
