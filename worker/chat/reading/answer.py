"""One answer: where its thoughts, its calls and its content begin and end."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence

import msgspec

from worker.chat.message import Call, Tool
from worker.chat.reader import ChatReader, Content, Thought
from worker.chat.reading.call_grammar import Lark, with_spaces
from worker.chat.reading.calls import Calls, new_id
from worker.chat.reading.source import DamagedError, Steps, StepwiseReader, TextSource

# What opens calls that are bare JSON.
BARE = "{"


class ThoughtTags(msgspec.Struct, frozen=True):
    """The texts around a thought. Empty ones: the model does not think."""

    open: str = ""
    close: str = ""


class ThoughtEnd(msgspec.Struct, frozen=True):
    """Where thoughts of an answer begin and end, and the text that ends one.

    is_open  whether the answer begins inside one
    """

    opens: tuple[str, ...]
    ends: tuple[str, ...]
    text: str
    is_open: bool


class AnswerStart(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer begins.

    prompt  what stands before it
    tags    of the model's thoughts
    inside  whether it begins inside a thought
    opened  with which text of the prompt that begins, at its end; empty: it goes on
    thinks  whether it may begin with a thought
    """

    prompt: str
    tags: ThoughtTags
    inside: bool
    opened: str
    thinks: bool


class CallGrammar(msgspec.Struct, frozen=True):
    """
    opens  a text with which calls begin, and which is nothing else; empty: there is none
    rest   a Lark expression of what follows it
    """

    opens: str
    rest: str


class AnswerGrammar(msgspec.Struct, frozen=True):
    """
    text      a Lark expression
    after     holds from this text on; empty: from the start
    is_bare   nothing can stand before the call or the body
    """

    text: str
    after: str = ""
    is_bare: bool = False


class SyntaxMarks(msgspec.Struct, frozen=True):
    """The texts of a way to write calls.

    name     of the dialect, for people
    opens    texts that open calls; one of a single `{` counts only where a line begins
    divides  those of them that are read without tools too
    silent   texts of the form that say nothing: they are not shown
    answers  those of them that end a thought, since content follows
    markers  texts that must be seen, where they are control tokens
    anywhere whether a thought's tags count in the midst of a text too, as nothing else looks so
    """

    name: str
    opens: tuple[str, ...] = ()
    divides: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    anywhere: bool = False


class Syntax(msgspec.Struct, frozen=True):
    """How a family writes calls; this one writes none."""

    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks("none")

    def make_id(self) -> str:
        """A call's id, where the model writes none."""
        return new_id()

    def past(self, calls: Sequence[Call]) -> str:
        """Calls of the past, for templates that show none."""
        return past_calls(calls)

    def overlap(self, prompt: str) -> str:  # noqa: ARG002
        """The prompt's end, where it is a part of what the answer says."""
        return ""

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar | None:  # noqa: ARG002
        """What calls of these tools look like, one of them or several; None: it cannot be held."""
        return None

    def read(self, source: TextSource, calls: Calls) -> Steps[None]:  # noqa: ARG002
        """The calls that come next, with the text that opens them. Raises DamagedError."""
        raise DamagedError

    def reader(
        self, tools: Sequence[Tool], start: AnswerStart, *, inline: bool, parallel: bool
    ) -> ChatReader:
        return AnswerReader(
            tools,
            self,
            start.tags,
            thinks=start.inside,
            inline=inline,
            parallel=parallel,
            before=self.overlap(start.prompt),
            opened=start.opened,
        )

    def thought_end(self, tags: ThoughtTags, *, is_open: bool) -> ThoughtEnd | None:
        if not tags.close:
            return None
        calls = (text for text in self.marks.opens if text != BARE)
        return ThoughtEnd((tags.open,), (tags.close, *calls), f"\n{tags.close}\n\n", is_open)

    def answer(
        self, lark: Lark, start: AnswerStart, *, call: CallGrammar | None, body: str
    ) -> AnswerGrammar:
        tags, kinds = start.tags, [body] if body else []
        if call is not None:
            kinds.insert(0, lark.rule(f"{with_spaces(lark.text(call.opens), call.rest)} WS?"))
        kind = lark.one_of(kinds) if len(kinds) > 1 else kinds[0]
        if start.inside:
            return AnswerGrammar(f"WS? {kind}", after=tags.close)
        if start.thinks:
            opened = lark.text(tags.open.rstrip())
            thought = lark.rule(f"WS? {opened} {lark.until(tags.close)}")
            return AnswerGrammar(f"WS? {thought}? WS? {kind}")
        return AnswerGrammar(f"WS? {kind}", is_bare=True)


def without_half(text: str, markers: Sequence[str]) -> str:
    """A text that nothing follows, without the beginning of a marker at its end. One that begins as
    a word does, or with a single character other than `<`, is taken for text."""
    halves = (
        marker[:size]
        for marker in markers
        if marker and not marker[0].isalnum()
        for size in range(len(marker) - 1, 0 if marker[0] == "<" else 1, -1)
    )
    return text.removesuffix(
        max((half for half in halves if text.endswith(half)), key=len, default="")
    )


def past_calls(calls: Sequence[Call]) -> str:
    """As a template that knows no calls is asked to write them."""
    return "\n".join(f"<tool_call>{call_json(call)}</tool_call>" for call in calls)


def call_json(call: Call) -> str:
    """A past call as a JSON object."""
    name = json.dumps(call.name, ensure_ascii=False)
    return f'{{"name": {name}, "arguments": {call.arguments.strip() or "{}"}}}'


class AnswerReader(StepwiseReader):
    """Reads thoughts between tags, calls, and content.

    - A thought begins at the beginning of an answer, after another one, or after a call.
    - A call inside a thought ends the thought, if the thought has no end of its own; else it was
      a rehearsal. So from there on nothing is told before the end of one of the two is known.
    - White space around thoughts and calls is left out; other white space stays.
    - What is no call after all is given back as what it stands in, thought or content.
    - A call that has begun and breaks gets no end, and its text follows as content.
    """

    def __init__(
        self,
        tools: Sequence[Tool],
        syntax: Syntax,
        tags: ThoughtTags,
        *,
        thinks: bool = False,
        inline: bool = False,
        parallel: bool = True,
        before: str = "",
        opened: str = "",
    ) -> None:
        """
        thinks  the prompt ends inside a thought
        opened  with which text of the prompt that begins, at its end; empty: it goes on
        inline  thoughts stay in the content, with their tags
        before  text of the prompt's end that the answer is to be read with
        """
        super().__init__(before)
        self._calls = Calls(
            self._source, tools, self._events.append, make_id=syntax.make_id, parallel=parallel
        )
        self._syntax, self._marks = syntax, syntax.marks
        self._opens = self._marks.opens if tools else self._marks.divides
        # White space at the end of an opening tag is a habit, not a part of it.
        self._tags = ThoughtTags(tags.open.rstrip(), tags.close)
        self._inline = inline
        self._thinks = thinks
        self._space = ""  # held back: it is left out before thoughts and calls
        self._skips = False  # white space that follows is left out
        self._is_fresh = True  # no content since the beginning, or since a thought or a call
        self._last = "\n"  # the last character that was told
        self._gave_back = False  # a call that broke: all of its text is content
        if thinks:
            self._skips = bool(opened) and not inline
        # Of an inline thought that the prompt has opened: told once there is something in it.
        self._owed = (opened or tags.open) if thinks and inline else ""

    @property
    def is_thinking(self) -> bool:
        """Whether what has been read ends inside a thought that is told as one."""
        return self._thinks and not self._inline

    def _read(self) -> Generator[None, None, None]:
        source = self._source
        while True:
            source.mark()
            markers = self._markers()
            text, marker = source.take(markers)
            if text and source.is_ended and marker is None and not self._gave_back:
                text = without_half(text, markers)
            self._tell(text)
            if marker is None:
                if source.is_ended:
                    break
                yield
            elif marker in self._opens:
                if not self._thinks or not (yield from self._rehearse(marker)):
                    yield from self._read_calls(marker)
            elif marker in (self._tags.open, self._tags.close):
                self._read_tag(marker)
            elif marker in self._marks.answers and self._thinks:
                self._owed = ""
                self._end_thought()
        if self._space and not self._thinks and not self._skips:
            self._events.append(Content(self._space))

    def _markers(self) -> tuple[str, ...]:
        tags, silent = self._tags, self._marks.silent
        opens = self._opens
        if self._thinks:
            opens = tuple(text for text in opens if text != "{")
        if tags.close and (self._is_fresh or self._thinks or self._marks.anywhere):
            return (tags.open, tags.close, *opens, *silent)
        return (*opens, *silent)

    def _rehearse(self, opened: str) -> Steps[bool]:
        """Whether the thought goes on behind what opens a call here; then that is read as thought.
        Else nothing is read."""
        source, tags = self._source, self._tags
        source.skip(-len(opened))
        source.mark()
        trial = self._calls.trial()
        try:
            yield from self._syntax.read(source, trial)
        except DamagedError:
            source.rewind()
            source.skip(len(opened))
            if not trial.num_begun:
                self._tell(opened)
                return True
        while tags.close:
            _, tag = source.take((tags.open, tags.close) if tags.open else (tags.close,))
            if tag is not None and tag == tags.close:
                self._tell(source.since_mark.removesuffix(tag))
                self._read_tag(tag)
                return True
            if tag is not None or source.is_ended:
                break
            yield
        source.rewind()
        source.skip(len(opened))
        return False

    def _read_tag(self, tag: str) -> None:
        """A thought begins or ends. An end without a beginning is left out, so is a second
        beginning; in the midst of a text a beginning is text."""
        opens = tag == self._tags.open
        is_between = self._is_fresh or (self._thinks and not opens)
        if not (is_between or self._marks.anywhere):
            self._tell(tag)
            return
        if self._inline and is_between and not (opens and self._owed):
            self._tell_content(tag)
            self._is_fresh = True
        elif self._owed:
            self._owed = self._owed.rstrip()
        elif is_between or opens:
            self._space, self._skips, self._is_fresh = "", True, True
        self._thinks = opens
        self._last = "\n"

    def _end_thought(self) -> None:
        self._thinks = False
        self._space, self._skips, self._is_fresh = "", True, True
        self._last = "\n"

    def _read_calls(self, opened: str) -> Steps[None]:
        source, calls = self._source, self._calls
        if opened == "{" and self._last != "\n":
            self._tell(opened)
            return
        source.skip(-len(opened))  # a damaged call is given back with its marker
        source.mark()
        begun, is_damaged = calls.num_begun, False
        try:
            yield from self._syntax.read(source, calls)
        except DamagedError:
            is_damaged = True
            if calls.num_begun == begun:
                source.rewind()
                source.skip(len(opened))
                self._tell(opened)
                return
        self._end_thought()
        if calls.is_open:
            calls.give_up()
            self._gave_back = True
            self._tell(source.since_mark)
        elif is_damaged:
            source.rewind()

    def _tell(self, text: str) -> None:
        if text and self._thinks and not self._inline:
            self._tell_thought(text)
        elif text:
            self._tell_content(text)

    def _tell_thought(self, text: str) -> None:
        text, self._space = self._without_space(text)
        if text:
            self._events.append(Thought(text))
            self._is_fresh = False

    def _tell_content(self, text: str) -> None:
        text, self._owed = self._owed + text, ""
        text, self._space = self._without_space(text)
        if text:
            self._events.append(Content(text))
            self._is_fresh = False
            self._last = text[-1]
        if "\n" in self._space:
            self._last = "\n"

    def _without_space(self, text: str) -> tuple[str, str]:
        """(what is certain, the white space at its end)"""
        if self._skips:
            text = text.lstrip()
            if not text:
                return "", ""
            self._skips = False
        text = self._space + text
        kept = text.rstrip()
        return kept, text[len(kept) :]
