"""GPT-OSS's channels: analysis is thought, final is content, a recipient makes a call.

<|channel|>analysis<|message|>Rain?<|end|><|start|>assistant<|channel|>commentary
to=functions.sky <|constrain|>json<|message|>{"at": "Rome"}<|call|>
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from typing import ClassVar

import msgspec

from worker.chat.message import Call, Tool
from worker.chat.reader import Content, Thought
from worker.chat.reading.answer import (
    AnswerGrammar,
    AnswerStart,
    CallGrammar,
    SyntaxMarks,
    ThoughtEnd,
    ThoughtTags,
    past_calls,
)
from worker.chat.reading.call_grammar import Lark, row
from worker.chat.reading.calls import Calls
from worker.chat.reading.json_text import call_in_json, whole_call
from worker.chat.reading.source import DamagedError, Steps, StepwiseReader

START, CHANNEL, CONSTRAIN, MESSAGE, END = (
    "<|start|>",
    "<|channel|>",
    "<|constrain|>",
    "<|message|>",
    "<|end|>",
)
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END)
_OPENING = f"{START}assistant"
_UNSTARTED = f"assistant{CHANNEL}"  # an opening without its first mark
_TO = "to=functions."
ANALYSIS = f"{CHANNEL}analysis{MESSAGE}"
TO_FINAL = f"{END}{_OPENING}{CHANNEL}final{MESSAGE}"
# Models write the recipient after the role or after the channel.
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")
_MAX_HEADER = 512
# A header that no `<|message|>` ends; the text may end inside a word of it.
_HALF = r"[a-z]{1,10}\Z"
_TO_WHOM = r"\s*(?:to=[^\s<{]{0,256}|to?\Z)?\s*"
_BARE = re.compile(
    rf"(?:<\|start\|>(?:assistant|{_HALF})?)?{_TO_WHOM}"
    rf"(?:<\|channel\|>\s*(?:analysis|commentary|final|{_HALF})?)?{_TO_WHOM}"
    rf"(?:<\|constrain\|>\s*(?:analysis|commentary|final|json\b|{_HALF})?|json\b)?"
)
_NOBODY = ("", "user", "assistant")  # as recipients: what follows is no call


class HarmonyHeader(msgspec.Struct, frozen=True):
    """Of a message: who shall get it, on which channel."""

    recipient: str
    channel: str


def header_of(text: str) -> HarmonyHeader:
    """What the text before `<|message|>` says; both parts may be missing. Of two channels the last
    one counts."""
    recipient, channels = _RECIPIENT.search(text), _CHANNEL.findall(text)
    return HarmonyHeader(recipient[1] if recipient else "", channels[-1] if channels else "")


class HarmonyReader(StepwiseReader):
    """Reads an answer message by message. What has no header is content; marks never are."""

    ends: ClassVar[tuple[str, ...]] = (END, START, CHANNEL, "<|call|>", "<|return|>")
    # Headers that no mark begins.
    unmarked: ClassVar[tuple[str, ...]] = tuple(
        f"{word}{MESSAGE}" for word in ("analysis", "commentary", "final", "json", "assistant")
    )

    def __init__(
        self, tools: Sequence[Tool], *, prompt: str, inline: bool = False, parallel: bool = True
    ) -> None:
        """As in `ChatFormat.reader`; inline: thoughts stay in the content, with their header."""
        opening = prompt.rpartition(_OPENING)[2] if _OPENING in prompt else ""
        before, is_open, _ = opening.rpartition(MESSAGE)
        self._open = header_of(before) if is_open else None
        super().__init__("" if is_open else opening)
        self._calls = Calls(self._source, tools, self._events.append, parallel=parallel)
        self._inline = inline
        self._thinks = False

    @property
    def is_thinking(self) -> bool:
        """Whether what has been read ends inside a thought that is told as one."""
        return self._thinks

    def is_thought(self, header: HarmonyHeader) -> bool:
        return header.channel == "analysis" and header.recipient in _NOBODY

    def read_call(self, header: HarmonyHeader) -> Steps[None]:
        """A call's body. Raises DamagedError."""
        source, calls = self._source, self._calls
        yield from source.space()
        end = yield from source.one_of(*self.ends)
        if end is not None:
            source.skip(-len(end))
            whole_call(calls, header.recipient, "{}")
        else:
            yield from call_in_json(source, calls, header.recipient)

    def _read(self) -> Generator[None, None, None]:
        source = self._source
        if self._open is not None:
            yield from self._message(self._open)
        while not source.is_ended or source.rest:
            source.mark()
            header = yield from self._header()
            if header is None:
                yield from source.one_of(*MARKERS, *self.ends)
                yield from self._text(Content)
            else:
                yield from self._message(header)

    def _header(self) -> Steps[HarmonyHeader | None]:
        """The next message's header; None: something else comes."""
        source = self._source
        yield from source.space()
        found = yield from source.one_of(
            START, CHANNEL, CONSTRAIN, "to=", MESSAGE, _UNSTARTED, *self.unmarked
        )
        if found == MESSAGE:
            return header_of("")
        if found in self.unmarked:
            return header_of(f"{CHANNEL}{found}")
        if found is None:
            if not source.is_ended or source.rest:
                source.rewind()
            return None
        try:
            text, end = yield from source.until(
                MESSAGE, *self.ends[:1], fits=lambda text: len(text) <= _MAX_HEADER
            )
        except DamagedError:
            text, end = "", ""
        if end == MESSAGE and len(text) <= _MAX_HEADER:
            return header_of(found + text)
        source.rewind()
        return (yield from self._bare_header())

    def _bare_header(self) -> Steps[HarmonyHeader | None]:
        """One that is not ended, as far as it goes."""
        source = self._source
        yield from source.space()
        match = _BARE.match(source.rest)
        if match is None or "<|" not in match[0]:
            source.rewind()
            return None
        source.skip(match.end())
        return header_of(match[0])

    def _message(self, header: HarmonyHeader) -> Steps[None]:
        if self.is_thought(header):
            yield from self._thought()
        elif header.recipient in _NOBODY:
            yield from self._text(Content)
        else:
            yield from self._call(header)

    def _thought(self) -> Steps[None]:
        if self._inline:
            if header := self._source.since_mark:  # else the prompt has it
                self._events.append(Content(header))
            if (yield from self._text(Content)):
                self._events.append(Content(self.ends[0]))
        else:
            self._thinks = True
            yield from self._text(Thought)
            self._thinks = False

    def _text(self, kind: type[Content | Thought]) -> Steps[bool]:
        """The body up to its end, and whether there is one; an end that is none in a body is not
        shown."""
        source = self._source
        while True:
            text, end = source.take((*self.ends, MESSAGE, CONSTRAIN, _UNSTARTED, *self.unmarked))
            if text:
                self._events.append(kind(text))
            if end is not None and end not in (MESSAGE, CONSTRAIN):
                break
            if end is None and source.is_ended:
                return False
            if end is None:
                yield
        if end in (START, CHANNEL, _UNSTARTED, *self.unmarked):
            source.skip(-len(end))
        return True

    def _call(self, header: HarmonyHeader) -> Steps[None]:
        """One that is none is content: the recipient and the body, or what follows a begun one."""
        source, calls = self._source, self._calls
        begun = calls.num_begun
        source.mark()
        try:
            yield from self.read_call(header)
        except DamagedError:
            if calls.is_open:
                calls.give_up()
            source.rewind()
            if calls.num_begun == begun:
                self._events.append(Content(f"to={header.recipient} "))
            yield from self._text(Content)
            return
        yield from source.space()
        yield from source.one_of(*(end for end in self.ends if end not in (START, CHANNEL)))


class Harmony(msgspec.Struct, frozen=True):
    @property
    def marks(self) -> SyntaxMarks:
        return SyntaxMarks("harmony", markers=MARKERS)

    def past(self, calls: Sequence[Call]) -> str:
        return past_calls(calls)

    def thought_end(self, tags: ThoughtTags, *, is_open: bool) -> ThoughtEnd:  # noqa: ARG002
        return ThoughtEnd((ANALYSIS,), (END,), TO_FINAL, is_open=False)

    def reader(
        self, tools: Sequence[Tool], start: AnswerStart, *, inline: bool, parallel: bool
    ) -> HarmonyReader:
        return HarmonyReader(tools, prompt=start.prompt, inline=inline, parallel=parallel)

    def grammar(self, lark: Lark, tools: Sequence[Tool], *, one: bool) -> CallGrammar:  # noqa: ARG002
        """After a recipient's prefix; one call ends an answer."""
        call = lark.one_of(
            [row(lark.text(tool.name), _more(lark), lark.arguments(tool)) for tool in tools]
        )
        return CallGrammar(_TO, call)

    def answer(
        self, lark: Lark, _start: AnswerStart, *, call: CallGrammar | None, body: str
    ) -> AnswerGrammar:
        """After its thoughts; an empty one may not come.

        It follows an opening, with which the prompt ends.
        """
        final = f"{CHANNEL}final{MESSAGE}"
        thought = lark.rule(row(lark.text(ANALYSIS), lark.until(END), lark.text(_OPENING)))
        kinds: list[str] = []
        if call is not None:
            to = f"{call.rest} WS?"
            kinds += [f'" {_TO}" {to}', row(lark.text(f"{CHANNEL}commentary {_TO}"), to)]
        if body:
            kinds.append(row(lark.text(final), body))
        return AnswerGrammar(f"{thought}* {lark.one_of(kinds)}")


def _more(lark: Lark) -> str:
    """A header's rest, after the recipient."""
    channel = lark.text(f"{CHANNEL}commentary")
    kind = f'" " ({lark.text(CONSTRAIN)})? "json"'
    return row(f"({kind} | {channel} ({kind})?)?", lark.text(MESSAGE))
