"""How a model's conversations are written: its template, and how its answers are read."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from worker.chat.constraint import AnswerForms, CallChoice
from worker.chat.conversation import Continued, Conversation, mark_end, says_nothing
from worker.chat.declared import declare, describe_all
from worker.chat.dialects.dialect import PLAIN, dialect_of
from worker.chat.dialects.prompted import EXAMPLE
from worker.chat.dialects.sample import KEY, NAME, VALUE
from worker.chat.history import History
from worker.chat.message import Message, Tool
from worker.chat.places import PlaceProbe
from worker.chat.probe import USER
from worker.chat.reader import ChatReader
from worker.chat.reading.answer import ThoughtEnd
from worker.chat.reading.call_grammar import Loosened
from worker.chat.template import ChatTemplate
from worker.chat.thinking import Thinking, ThoughtHabits, switch_thinking, without_mentions
from worker.chat.turns import BEGINS, ROLES, with_known_roles
from worker.errors import RequestError
from worker.grammar.constraint import Constraint


class ChatFormat:
    """The chat format of a model file. Made once, it never changes.

    dialect   how its calls are written
    thoughts  what its template does about thoughts
    places    what is done with each place of a conversation, in words
    named     formats by the file's other templates
    controls  control tokens that an answer's reader must see, spelled out -> token id
    spelled   token id -> bytes of these
    """

    def __init__(
        self,
        template: ChatTemplate,
        controls: Mapping[str, int],
        ends: Collection[str] = (),
        *,
        defaults: Mapping[str, Any] | None = None,
        named: Mapping[str, ChatFormat] | None = None,
    ) -> None:
        """
        controls  the vocabulary's control tokens, spelled out -> token id
        ends      its tokens that end an answer, spelled out
        defaults  variables that the template gets where a request does not name them
        named     the file's other templates
        """
        self.named = named or {}
        self._defaults = switch_thinking(defaults or {})
        self._ends = frozenset(ends)
        probe = PlaceProbe(template)
        self.template = probe.template
        self.places = probe.table()
        self.dialect = dialect_of(probe.sample) or PLAIN
        self.thoughts = ThoughtHabits(probe)
        self._no_tools = probe.no_tools
        self._knows_role = probe.knows_role
        self._describes = probe.wants_descriptions
        example = probe.sample.call or EXAMPLE
        for word, shown in ((NAME, "NAME"), (KEY, "KEY"), (VALUE, "VALUE")):
            example = example.replace(word, shown)
        self._shows_tools = probe.shows_tools
        self._whole = functools.lru_cache(maxsize=8)(
            self._describe_all
        )  # turns have the same tools
        past, example = self.dialect.past, example.strip()
        self._history = History(probe, example, past, tells=not probe.shows_tools)
        self._told = History(probe, example, past, tells=True)
        tags = self.thoughts.tags
        seen = (*self.dialect.marks.markers, tags.open, tags.open.rstrip(), tags.close)
        self.controls: Mapping[str, int] = {
            text: token
            for text, token in controls.items()
            if text and any(text in marker for marker in seen)
        }
        self.spelled = {token: text.encode() for text, token in self.controls.items()}

    def conversation(
        self,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        *,
        thinking: Thinking,
        add_generation_prompt: bool,
        continues: bool,
        variables: Mapping[str, Any],
    ) -> Conversation:
        """The messages as the template wants them; see `Conversation`."""
        if not ROLES.issuperset([message.role for message in messages]):
            messages = with_known_roles(messages, self._knows_role)
        shown = [declare(tool, describes=self._describes) for tool in tools]
        if tools and self._shows_tools:
            with contextlib.suppress(RecursionError):  # too deep to be looked at
                shown = self._whole(json.dumps(shown, ensure_ascii=False)) or shown
        variable = {"tools": shown} if tools else self._no_tools
        is_on = self._defaults.get("enable_thinking")
        if thinking.is_on is None and thinking.effort is None and isinstance(is_on, bool):
            thinking = msgspec.structs.replace(thinking, is_on=is_on)
        thoughts = self.thoughts.variables(thinking)
        variables = switch_thinking(variables) if variables else {}
        given = {**self._defaults, **thoughts, **variables, **variable}

        last = messages[-1]
        if continues and (says_nothing(last) or last.role not in ("user", "assistant")):
            continues, add_generation_prompt = False, True
            if last.role == "assistant":
                messages = messages[:-1] or [BEGINS]
        if continues:
            messages = [*messages[:-1], self._in_words(last)]

        if self.thoughts.tags.close:
            messages = without_mentions(messages, self.thoughts.tags)

        def conversation(history: History) -> Conversation:
            return Conversation(
                self.template,
                history.messages(messages, tools),
                add_generation_prompt=add_generation_prompt,
                ending=self._ending(messages, tools, history) if continues else None,
                variables=given,
            )

        found = conversation(self._history)
        if tools and self._shows_tools:
            try:
                _ = found.text
            except RequestError:  # some templates want more of a schema than it says
                del given["tools"]
                given |= self._no_tools
                return conversation(self._told)
        return found

    def _describe_all(self, declared_tools: str) -> list[dict[str, Any]] | None:
        """Tools, as JSON, as `describe_all` has them. They are looked at without the conversation:
        what is said in it must not change how the prompt begins."""
        tools = json.loads(declared_tools)
        variables = {**self._defaults, "tools": tools}
        with contextlib.suppress(RequestError):
            return describe_all(
                tools, self.template.render([USER], add_generation_prompt=True, **variables)
            )
        return None

    @property
    def _around_thought(self) -> tuple[str, str]:
        """The texts around a thought in an answer; empty ones: there are none."""
        end = self.dialect.thought_end(self.thoughts.tags, is_open=False)
        return ("", "") if end is None else (end.opens[0], end.text)

    def _in_words(self, last: Message) -> Message:
        """A message that is to go on, with its calls as text, and its thought where the model has
        no place for one: a prompt that ends inside a message shows nothing that stands behind."""
        thought, content = last.thought, last.content
        if thought and not self._around_thought[0]:
            content = "\n\n".join(text for text in (thought, content) if text and text.strip())
            thought = None
        if last.calls:
            content = "\n".join(filter(None, (content, self.dialect.past(last.calls))))
        return msgspec.structs.replace(last, content=content, thought=thought, calls=())

    def _ending(
        self, messages: Sequence[Message], tools: Sequence[Tool], history: History
    ) -> Continued:
        """Where the prompt ends of a last message that is to go on."""
        last, before = messages[-1], messages[:-1] or [BEGINS]
        shown = history.messages([*messages[:-1], mark_end(last)], tools)[-1]
        return Continued(
            last.content or "",
            last.thought or "",
            *self._around_thought,
            shown,
            history.messages(before, tools),
        )

    def thought_end(self, prompt: str) -> ThoughtEnd | None:
        """How a thought of an answer to this prompt ends; None: the model has none."""
        is_open = self.thoughts.is_inside(prompt)
        return self.dialect.thought_end(self.thoughts.tags, is_open=is_open)

    def constraint(
        self,
        tools: Sequence[Tool],
        *,
        prompt: str,
        thinking: Thinking,
        required: bool,
        parallel: bool,
        loosened: Loosened,
        body: Constraint | None = None,
    ) -> Constraint | None:
        """What an answer to a prompt is held to; None: nothing.

        tools     that may be called
        required  whether there must be a call
        loosened  a tool's schema as text behind `%json` in Lark, without what cannot be held
        body      what the answer must be; where a call is required the call counts, else either
        """
        choice = CallChoice(
            tools=tools,
            required=required,
            parallel=parallel,
            start=self.thoughts.start(prompt, thinking),
        )
        forms = AnswerForms(self.dialect, self.controls, self._ends)
        is_other = body is not None and body.kind != "json_schema"
        if tools and (required or not is_other):
            made = forms.call(choice, loosened, body)
            if made is not None or body is None:
                return made
        return body and forms.structure(body, choice)

    def reader(
        self, tools: Sequence[Tool], *, prompt: str, thinking: Thinking, parallel: bool = True
    ) -> ChatReader:
        """Of one answer to a prompt.

        tools     that it may call; where there are none, a call is text
        prompt    the prompt's text: where it ends inside a thought, the answer begins inside it
        parallel  False: only the first call is told
        """
        start = self.thoughts.start(prompt, thinking)
        return self.dialect.reader(tools, start, inline=thinking.inline, parallel=parallel)
